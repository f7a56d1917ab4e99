# grow.awk - a public header as a later release may have it: every structure that begins with `size` has more fields at its end.
#
# usage: awk -f grow.awk HEADER >LATER/HEADER
/^typedef struct hd_[a-z_]+ \{/ { first = 1; print; next }
first { sized = /^    size_t size;/; first = 0 }
/^\} hd_[a-z_]+;/ {
    if (sized) {
        print "    uint64_t later_number;"
        print "    const char *later_text;"
        print "    char later_room[21];"
    }
    sized = 0
}
{ print }
