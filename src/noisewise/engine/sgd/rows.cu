// Rows of factors as a warp of a GPU has them; kernels.cu follows in the same program.

typedef long long Long;
typedef unsigned long long Pointer;
typedef unsigned int Position;  // of an observation

#ifdef HOST  // for tests: a warp is one thread of a CPU
#define LANES 1
static float total(float x) { return x; }
static float inverse_root(float x) { return 1.0f / sqrtf(x); }
static float logarithm(float x) { return logf(x); }
template <bool ONCE = false, class T> static T fetch(const T* p) { return *p; }
template <bool ONCE = false, class T> static void put(T* p, T x) { *p = x; }
static void early(const void*) {}
static unsigned int reached(const unsigned int* p) { return *p; }
static void reach(unsigned int* p, unsigned int t) { *p = t; }
#else
#define LANES 32
__device__ __forceinline__ float total(float x) {
#pragma unroll
  for (int k = 16; k; k >>= 1) x += __shfl_xor_sync(~0u, x, k);
  return x;
}
__device__ __forceinline__ float inverse_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ float logarithm(float x) { return __logf(x); }
// Past the first cache, which does not see what other multiprocessors write. What only one warp ever
// touches (ONCE) need not stay in the second either, where it would displace what all of them use.
template <bool ONCE = false, class T> __device__ __forceinline__ T fetch(const T* p) {
  return ONCE ? __ldcs(p) : __ldcg(p);
}
template <bool ONCE = false, class T> __device__ __forceinline__ void put(T* p, T x) {
  if (ONCE)
    __stcs(p, x);
  else
    __stcg(p, x);
}
__device__ __forceinline__ void early(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
__device__ __forceinline__ unsigned int reached(const unsigned int* p) {
  unsigned int t;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(t) : "l"(p) : "memory");
  return t;
}
__device__ __forceinline__ void reach(unsigned int* p, unsigned int t) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(t) : "memory");
}
#endif

__device__ __forceinline__ float from_half(unsigned short bits) {
#ifdef HOST
  return host_from_half(bits);
#else
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
#endif
}

__device__ __forceinline__ unsigned short to_half(float x) {
#ifdef HOST
  return host_to_half(x);
#else
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#endif
}

// One part of a row, spread over the lanes of a warp in pieces as wide as one access.
template <int WIDTH> struct Part {
  static const int EACH = WIDTH <= LANES ? 1 : WIDTH <= 2 * LANES ? 2 : 4;
  static const int PIECES = (WIDTH + LANES * EACH - 1) / (LANES * EACH);
  static const int SIZE = PIECES * EACH;
  float x[SIZE ? SIZE : 1];

  static __device__ __forceinline__ int column(int piece, int lane) {
    return (piece * LANES + lane) * EACH;
  }

  static __device__ __forceinline__ bool inside(int k, int lane) {
    return WIDTH % (LANES * EACH) == 0 || column(k / EACH, lane) < WIDTH;
  }

  template <bool H, bool ONCE>
  __device__ __forceinline__ void load(const char* at, int lane, float beyond) {
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
      int c = column(p, lane);
      float* y = x + p * EACH;
#pragma unroll
      for (int k = 0; k < EACH; k++) y[k] = beyond;
      if (!inside(p * EACH, lane)) continue;
      if (H && EACH == 4) {
        uint2 v = fetch<ONCE>((const uint2*)(at + 2 * c));
        y[0] = from_half(v.x & 0xffff), y[1 % EACH] = from_half(v.x >> 16);
        y[2 % EACH] = from_half(v.y & 0xffff), y[3 % EACH] = from_half(v.y >> 16);
      } else if (H) {
#pragma unroll
        for (int k = 0; k < EACH; k++)
          y[k] = from_half(fetch<ONCE>((const unsigned short*)(at + 2 * (c + k))));
      } else if (EACH == 4) {
        float4 v = fetch<ONCE>((const float4*)(at + 4 * c));
        y[0] = v.x, y[1 % EACH] = v.y, y[2 % EACH] = v.z, y[3 % EACH] = v.w;
      } else if (EACH == 2) {
        float2 v = fetch<ONCE>((const float2*)(at + 4 * c));
        y[0] = v.x, y[1 % EACH] = v.y;
      } else {
        y[0] = fetch<ONCE>((const float*)(at + 4 * c));
      }
    }
  }

  template <bool H, bool ONCE> __device__ __forceinline__ void store(char* at, int lane) const {
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
      int c = column(p, lane);
      const float* y = x + p * EACH;
      if (!inside(p * EACH, lane)) continue;
      if (H && EACH == 4) {
        uint2 v;
        v.x = to_half(y[0]) | (unsigned int)to_half(y[1 % EACH]) << 16;
        v.y = to_half(y[2 % EACH]) | (unsigned int)to_half(y[3 % EACH]) << 16;
        put<ONCE>((uint2*)(at + 2 * c), v);
      } else if (H) {
#pragma unroll
        for (int k = 0; k < EACH; k++)
          put<ONCE>((unsigned short*)(at + 2 * (c + k)), to_half(y[k]));
      } else if (EACH == 4) {
        float4 v = make_float4(y[0], y[1 % EACH], y[2 % EACH], y[3 % EACH]);
        put<ONCE>((float4*)(at + 4 * c), v);
      } else if (EACH == 2) {
        put<ONCE>((float2*)(at + 4 * c), make_float2(y[0], y[1 % EACH]));
      } else {
        put<ONCE>((float*)(at + 4 * c), y[0]);
      }
    }
  }
};

typedef Part<MEAN> Mean;
typedef Part<DEVIATION> Deviation;

template <bool H, bool LEARN, bool ONCE = false> struct Row {
  static const int FACTOR = H ? 2 : 4, HEADER = 64;
  static const int AT_DEVIATION = HEADER + MEAN * FACTOR;
  static const int AT_SUMS = AT_DEVIATION + DEVIATION * FACTOR;
  static const int STRIDE = H ? HALF_STRIDE : FULL_STRIDE;
  float bias, bias_sum, mean_sum, deviation_sum, share;
  Mean mean, mean_sums;
  Deviation deviation, deviation_sums;

  static __device__ __forceinline__ char* place(Pointer rows, int code) {
    return (char*)rows + (Long)code * STRIDE;
  }

  static __device__ __forceinline__ void ahead(Pointer rows, int code, int lane) {
    const char* at = place(rows, code);
    for (int k = 128 * lane; k < STRIDE; k += 128 * LANES) early(at + k);
  }

  __device__ __forceinline__ void load(Pointer rows, int code, int lane) {
    const char* at = place(rows, code);
    float4 v = fetch<ONCE>((const float4*)at);
    bias = v.x, bias_sum = v.y, mean_sum = v.z, deviation_sum = v.w;
    share = SHARES ? fetch<ONCE>((const float*)(at + 16)) : 1.0f;
    mean.template load<H, ONCE>(at + HEADER, lane, 0.0f);
    if (!PER_ROW) mean_sums.template load<false, ONCE>(at + AT_SUMS, lane, 1.0f);
    if (LEARN) {
      deviation.template load<H, ONCE>(at + AT_DEVIATION, lane, 0.0f);
      if (!PER_ROW) deviation_sums.template load<false, ONCE>(at + AT_SUMS + 4 * MEAN, lane, 1.0f);
    }
  }

  __device__ __forceinline__ void store(Pointer rows, int code, int lane) const {
    char* at = place(rows, code);
    if (lane == 0) put<ONCE>((float4*)at, make_float4(bias, bias_sum, mean_sum, deviation_sum));
    mean.template store<H, ONCE>(at + HEADER, lane);
    if (!PER_ROW) mean_sums.template store<false, ONCE>(at + AT_SUMS, lane);
    if (LEARN) {
      deviation.template store<H, ONCE>(at + AT_DEVIATION, lane);
      if (!PER_ROW) deviation_sums.template store<false, ONCE>(at + AT_SUMS + 4 * MEAN, lane);
    }
  }
};
