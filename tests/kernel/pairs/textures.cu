/* textures.cu - a texture reference, in CUDA C++ up to CUDA 11. Heddle refuses it, since it binds
 * none, and later toolkits dropped them.
 *
 * A texture object (cudaTextureObject_t) is a parameter of 8 bytes; pass it with hd_u64.
 */
texture<float, 1, cudaReadModeElementType> picture;

__global__ void sample(float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = tex1Dfetch(picture, i);
    }
}
