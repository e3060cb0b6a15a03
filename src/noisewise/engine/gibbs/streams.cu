// Blocks, warps and random numbers. A row has the stream that it has on the CPU (random.py): a
// counter, so that the lanes of a warp can look at its next numbers side by side.

typedef unsigned long long uint64;

#ifdef HOST
#define LANES 1
#define THREADS 1
#define KERNEL extern "C" void
#define LARGE_KERNEL KERNEL
#define WIDE_KERNEL KERNEL
#define WIDE 1
#define EACH_BLOCK(b, many) for (long long b = 0, thread = 0; b < (many); b++)
#define EACH_WARP(w, many) for (long long w = 0, lane = 0, warp = 0; w < (many); w++)
#define EACH_THREAD(t, many) for (long long t = 0; t < (many); t++)
#define SHARED alignas(16) static char shared_memory[1 << 22]
#define PER_WARP(type, name, size) static type name[1][size]
#define TOTAL(x) (x)
#define BARRIER
#define WARP_BARRIER
#else
#define LANES 32
#ifndef THREADS
#define THREADS 256
#endif
#ifndef RESIDENT
#define RESIDENT 1  // blocks on a multiprocessor, at least
#endif
#define KERNEL extern "C" __global__ void __launch_bounds__(256)
#define LARGE_KERNEL extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
#define WIDE_KERNEL extern "C" __global__ void __launch_bounds__(1024)
#define WIDE 1024
#define EACH_BLOCK(b, many)                                                                       \
  const int thread = threadIdx.x;                                                                 \
  for (long long b = blockIdx.x; b < (many); b += gridDim.x)
#define EACH_WARP(w, many)                                                                        \
  const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;                               \
  for (long long w = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / LANES; w < (many);      \
       w += gridDim.x * (long long)blockDim.x / LANES)
#define EACH_THREAD(t, many)                                                                      \
  for (long long t = blockIdx.x * (long long)blockDim.x + threadIdx.x; t < (many);                \
       t += gridDim.x * (long long)blockDim.x)
#define SHARED extern __shared__ __align__(16) char shared_memory[]
#define PER_WARP(type, name, size) __shared__ type name[8][size]
#define TOTAL(x) warp_total(x)
#define BARRIER __syncthreads()
#define WARP_BARRIER __syncwarp()

template <typename T>
__device__ __forceinline__ T warp_total(T x) {
  for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(~0u, x, o);
  return x;
}
#endif

#define STEP 0x9E3779B97F4A7C15ull
#define TINY 1e-300

__device__ __forceinline__ uint64 mixed(uint64 x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

__device__ __forceinline__ uint64 stream(uint64 key, uint64 number) {
  return mixed(key + (number + 1) * 0xD1342543DE82EF95ull);
}

// The number of the stream that comes so many places later; between 0 and 1.
__device__ __forceinline__ double uniform_at(uint64 state, uint64 later) {
  return ((double)(mixed(state + later * STEP) >> 11) + 0.5) * 0x1p-53;
}

__device__ __forceinline__ double uniform(uint64* state) {
  const double u = uniform_at(*state, 1);
  *state += STEP;
  return u;
}

// One try of Marsaglia's polar method, so many tries later: whether it gives two normals.
__device__ __forceinline__ bool pair_at(uint64 state, uint64 later, double* first, double* second) {
  const double a = 2.0 * uniform_at(state, 2 * later + 1) - 1.0;
  const double b = 2.0 * uniform_at(state, 2 * later + 2) - 1.0;
  const double square = a * a + b * b;
  if (!(square > 0.0 && square < 1.0)) return false;
  const double scale = sqrt(-2.0 * log(square) / square);
  *first = a * scale;
  *second = b * scale;
  return true;
}

__device__ __forceinline__ void normal_pair(uint64* state, double* first, double* second) {
  bool found = false;
  while (!found) {
    found = pair_at(*state, 0, first, second);
    *state += 2 * STEP;
  }
}

// Gamma of scale 1; shape at least 1 (Marsaglia and Tsang).
__device__ double gamma(uint64* state, double shape) {
  const double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
  while (true) {
    double x, unused;
    normal_pair(state, &x, &unused);
    double v = 1.0 + c * x;
    if (v <= 0.0) continue;
    v = v * v * v;
    const double u = uniform(state);
    if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return d * v;
  }
}

// Lanes try side by side; pairs are put down in the order of the stream, from out[have] on, and no
// more than `wanted` of them. Returns how many; the state then comes after the last one used.
__device__ int more_pairs(uint64* state, int wanted, double* out, int lane) {
  double first = 0.0, second = 0.0;
  const bool found = pair_at(*state, lane, &first, &second);
#ifdef HOST
  const int place = 0, many = found;
  *state += 2 * STEP;
#else
  const unsigned all = __ballot_sync(~0u, found);
  const int place = __popc(all & ((1u << lane) - 1)), total = __popc(all);
  const int many = total < wanted ? total : wanted;
  // The try that gave the last pair that is used; all of them if more are wanted.
  const unsigned last = __ballot_sync(~0u, found && place == wanted - 1);
  *state += 2 * (uint64)(last ? __ffs(last) : LANES) * STEP;
#endif
  if (found && place < wanted) {
    out[2 * place] = first;
    out[2 * place + 1] = second;
  }
  return many;
}

// Take so many numbers away from the front; of what is left, at most 2 LANES, return how many.
__device__ __forceinline__ int take(double* z, int many, int have, int lane) {
  const int left = have - many;
  WARP_BARRIER;
  const double a = lane < left ? z[many + lane] : 0.0;
  const double b = lane + LANES < left ? z[many + LANES + lane] : 0.0;
  WARP_BARRIER;
  if (lane < left) z[lane] = a;
  if (lane + LANES < left) z[LANES + lane] = b;
  WARP_BARRIER;
  return left;
}

__device__ __forceinline__ double below(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

__device__ __forceinline__ double density(double x) {
  return 0.39894228040143267794 * exp(-0.5 * x * x);
}

// Shares below both ends, seen from the side where they are small; the side.
__device__ __forceinline__ double tails(double low, double high, double* a, double* b) {
  if (low > 0.0) {
    *a = below(-high);
    *b = below(-low);
    return -1.0;
  }
  *a = below(low);
  *b = below(high);
  return 1.0;
}

__device__ __forceinline__ double ratio(const double* a, const double* b, double r) {
  double top = a[0], bottom = b[0];
  for (int k = 1; k < 8; k++) {
    top = top * r + a[k];
    bottom = bottom * r + b[k];
  }
  return top / bottom;
}

#ifdef HOST
#define TABLE static const
#else
#define TABLE __constant__
#endif
TABLE double NEAR_TOP[8] = {
    2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
    4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
    1.3314166789178437745e2, 3.3871328727963666080e0};
TABLE double NEAR_BOTTOM[8] = {
    5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4,
    2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2,
    4.2313330701600911252e1, 1.0};
TABLE double TAIL_TOP[8] = {
    7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
    1.27045825245236838258e0,  3.64784832476320460504e0,  5.76949722146069140550e0,
    4.63033784615654529590e0,  1.42343711074968357734e0};
TABLE double TAIL_BOTTOM[8] = {
    1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
    1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0,
    2.05319162663775882187e0,  1.0};
TABLE double FAR_TOP[8] = {
    2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
    2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
    5.46378491116411436990e0,  6.65790464350110377720e0};
TABLE double FAR_BOTTOM[8] = {
    2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
    7.86869131145613259100e-4,  1.48753612908506148525e-2, 1.36929880922735805310e-1,
    5.99832206555887937690e-1,  1.0};

// x with below(x) = p (Wichura's AS 241).
__device__ double quantile(double p) {
  const double q = p - 0.5;
  if (fabs(q) <= 0.425) return q * ratio(NEAR_TOP, NEAR_BOTTOM, 0.180625 - q * q);
  const double tail = q < 0.0 ? p : 1.0 - p;
  const double r = sqrt(-log(tail > TINY ? tail : TINY));
  const double x = r <= 5.0 ? ratio(TAIL_TOP, TAIL_BOTTOM, r - 1.6)
                            : ratio(FAR_TOP, FAR_BOTTOM, r - 5.0);
  return q < 0.0 ? -x : x;
}
