/* stencils.cu - grids whose points read their neighbours' values, in CUDA C++. stencils.c is the
 * same as kernel source. */
#define RADIUS 4
#define TILE_X 32
#define TILE_Y 8

// The second derivative, of 8th order.
__constant__ float derivative[RADIUS + 1] = {-205.0f / 72, 8.0f / 5, -1.0f / 5, 8.0f / 315, -1.0f / 560};

namespace wave
{
// A step of the acoustic wave equation: a column of points along z in registers, their plane in
// shared memory.
__global__ void acoustic(float *next, const float *now, const float *velocity, int nx, int ny, int nz)
{
    __shared__ float plane[TILE_Y + 2 * RADIUS][TILE_X + 2 * RADIUS];
    const int x = blockIdx.x * TILE_X + threadIdx.x + RADIUS, y = blockIdx.y * TILE_Y + threadIdx.y + RADIUS;
    const int tx = threadIdx.x + RADIUS, ty = threadIdx.y + RADIUS;
    const bool inside = x < nx - RADIUS && y < ny - RADIUS;
    const int cx = min(x, nx - 1), cy = min(y, ny - 1), size = nx * ny;
    float column[2 * RADIUS + 1];
    int at = cy * nx + cx;
    for (int i = 0; i < 2 * RADIUS; i++) {
        column[i + 1] = now[at + i * size];
    }
    for (int z = RADIUS; z < nz - RADIUS; z++) {
#pragma unroll
        for (int i = 0; i < 2 * RADIUS; i++) {
            column[i] = column[i + 1];
        }
        column[2 * RADIUS] = now[at + (z + RADIUS) * size];
        __syncthreads();
        plane[ty][tx] = column[RADIUS];
        if (threadIdx.y < RADIUS) {
            plane[threadIdx.y][tx] = now[z * size + (y - RADIUS) * nx + cx];
            plane[ty + TILE_Y][tx] = now[z * size + min(y + TILE_Y, ny - 1) * nx + cx];
        }
        if (threadIdx.x < RADIUS) {
            plane[ty][threadIdx.x] = now[z * size + cy * nx + x - RADIUS];
            plane[ty][tx + TILE_X] = now[z * size + cy * nx + min(x + TILE_X, nx - 1)];
        }
        __syncthreads();
        float sum = 3 * derivative[0] * column[RADIUS];
#pragma unroll
        for (int i = 1; i <= RADIUS; i++) {
            sum += derivative[i] * (column[RADIUS - i] + column[RADIUS + i] + plane[ty][tx - i] + plane[ty][tx + i] +
                                    plane[ty - i][tx] + plane[ty + i][tx]);
        }
        if (inside) {
            const int i = at + z * size;
            next[i] = 2 * column[RADIUS] - next[i] + velocity[i] * sum;
        }
    }
}
} // namespace wave

// With a border in shared memory; the ends keep their values.
template <int BLOCK> __global__ void heat_1d(float *next, const float *now, float k, int n)
{
    __shared__ float u[BLOCK + 2];
    int i = blockIdx.x * BLOCK + threadIdx.x, t = threadIdx.x + 1;
    u[t] = i < n ? now[i] : 0.0f;
    if (threadIdx.x == 0) {
        u[0] = i > 0 ? now[i - 1] : 0.0f;
    }
    if (threadIdx.x == BLOCK - 1) {
        u[BLOCK + 1] = i + 1 < n ? now[i + 1] : 0.0f;
    }
    __syncthreads();
    if (i < n) {
        next[i] = i == 0 || i == n - 1 ? u[t] : u[t] + k * (u[t - 1] - 2 * u[t] + u[t + 1]);
    }
}
template __global__ void heat_1d<128>(float *, const float *, float, int);

__global__ void jacobi_2d(double *next, const double *now, const double *source, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }
    int i = y * width + x;
    bool border = x == 0 || y == 0 || x == width - 1 || y == height - 1;
    next[i] = border ? now[i] : 0.25 * (now[i - 1] + now[i + 1] + now[i - width] + now[i + width] - source[i]);
}

__global__ void diffuse_3d(float *next, const float *now, float3 k, int nx, int ny, int nz)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
        z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= nx || y >= ny || z >= nz) {
        return;
    }
    int i = (z * ny + y) * nx + x;
    float u = now[i];
    float west = x > 0 ? now[i - 1] : u, east = x < nx - 1 ? now[i + 1] : u;
    float north = y > 0 ? now[i - nx] : u, south = y < ny - 1 ? now[i + nx] : u;
    float below = z > 0 ? now[i - nx * ny] : u, above = z < nz - 1 ? now[i + nx * ny] : u;
    next[i] = u + k.x * (west - 2 * u + east) + k.y * (north - 2 * u + south) + k.z * (below - 2 * u + above);
}

// Conway's game, on a torus.
__global__ void life(unsigned char *next, const unsigned char *now, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }
    int west = (x + width - 1) % width, east = (x + 1) % width;
    int north = (y + height - 1) % height * width, south = (y + 1) % height * width, row = y * width;
    int neighbours = now[north + west] + now[north + x] + now[north + east] + now[row + west] + now[row + east] +
                     now[south + west] + now[south + x] + now[south + east];
    next[row + x] = neighbours == 3 || (neighbours == 2 && now[row + x]);
}
