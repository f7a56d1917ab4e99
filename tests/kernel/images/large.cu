/* large.cu - a kernel whose parameters need more bytes than the older form of their description
 * allows. */
struct large {
    char bytes[6000];
};
__global__ void take(large l, int *out)
{
    *out = l.bytes[5999];
}
