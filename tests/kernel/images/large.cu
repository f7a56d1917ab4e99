/* large.cu - a kernel with more bytes of parameters than the older form of their description can have. */
struct large {
    char bytes[6000];
};
__global__ void take(large l, int *out)
{
    *out = l.bytes[5999];
}
