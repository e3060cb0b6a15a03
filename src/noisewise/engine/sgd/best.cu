// Per row of a table of scores, the best n columns, best first; among equals, the first column.
// A warp has a row. Each lane knows the best of its own columns that was not taken yet, and looks
// for its next one only when that is taken.

#ifdef HOST
#define LANES 1
#define KERNEL extern "C" void
#define EACH_ROW for (long long row = 0, lane = 0; row < rows; row++)
#else
#define LANES 32
#define KERNEL extern "C" __global__ void __launch_bounds__(256)
#define EACH_ROW                                                                                  \
  const long long row = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / LANES;               \
  const int lane = threadIdx.x % LANES;                                                           \
  if (row < rows)
#endif

struct Found {
  float score;
  int code;  // -1 is none
};

__device__ __forceinline__ bool before(Found a, Found b) {
  if (a.code < 0 || b.code < 0) return a.code >= 0;
  return a.score > b.score || (a.score == b.score && a.code < b.code);
}

__device__ __forceinline__ Found after(Found taken, const float* scores, long long columns,
                                       int lane) {
  Found mine = {0.0f, -1};
  for (long long c = lane; c < columns; c += LANES) {
    Found one = {scores[c], (int)c};
    if (one.score < -3e38f) continue;  // left out
    if ((taken.code < 0 || before(taken, one)) && before(one, mine)) mine = one;
  }
  return mine;
}

KERNEL best(const float* scores, long long rows, long long columns, int n, int* codes) {
  EACH_ROW {
    const float* own = scores + row * columns;
    Found mine = after(Found{0.0f, -1}, own, columns, lane);
    for (int k = 0; k < n; k++) {
      Found top = mine;
#ifndef HOST
      for (int o = 16; o; o >>= 1) {
        Found other = {__shfl_xor_sync(~0u, top.score, o), __shfl_xor_sync(~0u, top.code, o)};
        if (before(other, top)) top = other;
      }
#endif
      if (lane == 0) codes[row * n + k] = top.code;
      if (top.code >= 0 && top.code == mine.code) mine = after(top, own, columns, lane);
    }
  }
}
