/* textures.cu - a texture reference, in CUDA C++ up to CUDA 11. It is refused: later toolkits do not have it, and Heddle binds none.
 *
 * A texture object (cudaTextureObject_t) is a parameter of 8 bytes, which hd_u64 gives.
 */
texture<float, 1, cudaReadModeElementType> picture;

__global__ void sample(float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = tex1Dfetch(picture, i);
    }
}
