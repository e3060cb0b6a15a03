// Noise of observations, weights of implicit sets: steps/variances.py.

#define LEAST 1e-20
#define FLOOR 1e-10f
#define SHAPE 4.0
#define BUFFER (LANES * (FACTORS > 1 ? FACTORS - 1 : 1) + 2 * LANES + 2)  // normals of a warp

// The root of the precision of observations; `places` has a line for each mode.
KERNEL roots(const int* places, long long n, const float* noise, float* out) {
  EACH_THREAD(t, n) {
    float total = 0.0f;
    for (int k = 0; k < FACTORS; k++) {
      float product = noise[(long long)places[t] * FACTORS + k];
      for (int m = 1; m <= OTHERS; m++) product *= noise[(long long)places[m * n + t] * FACTORS + k];
      total += product;
    }
    out[t] = 1.0f / sqrtf(total > FLOOR ? total : FLOOR);
  }
}

// Take the parts of an observation's residual, given normals; add their squares.
__device__ __forceinline__ void add_parts(const float* own, const float* noise, const int* others,
                                          long long n, long long at, double left, const double* z,
                                          double* sums) {
  double rest[FACTORS], total = 0.0;
#pragma unroll
  for (int k = 0; k < FACTORS; k++) {
    double product = noise[(long long)others[at] * FACTORS + k];
    for (int o = 1; o < OTHERS; o++) product *= noise[(long long)others[o * n + at] * FACTORS + k];
    rest[k] = product;
    total += own[k] * product;
  }
#pragma unroll
  for (int k = 0; k < FACTORS - 1; k++) {
    const double mine = own[k] * rest[k], after = total > mine ? total - mine : 0.0;
    const double part = left * mine / total + z[k] * sqrt(mine * after / total);
    sums[k] += part * part / rest[k];
    left -= part;
    total = after;
  }
  sums[FACTORS - 1] += left * left / rest[FACTORS - 1];
}

// A warp has a row; lanes take observations, each with its FACTORS - 1 normals of the row's stream.
KERNEL draw_noise(const int* order, long long rows, const long long* starts, const int* index,
                  const int* others, long long n, float* noise, long long first,
                  const float* residual, const double* level, uint64 key) {
  PER_WARP(double, normals, BUFFER);
  EACH_WARP(w, rows) {
    const long long i = order[w];
    double* z = normals[warp];
    uint64 state = stream(key, i);
    float own[FACTORS];
    double sums[FACTORS];
    for (int k = 0; k < FACTORS; k++) {
      own[k] = noise[(first + i) * FACTORS + k];
      sums[k] = 0.0;
    }
    const long long start = starts[i], end = starts[i + 1];
    long long pairs = ((end - start) * (FACTORS - 1) + 1) / 2;  // that are not yet drawn
    int have = 0;
    for (long long at = start; at < end; at += LANES) {
      const int many = end - at < LANES ? end - at : LANES, needed = many * (FACTORS - 1);
      while (have < needed) {
        const int found = more_pairs(&state, pairs < LANES ? pairs : LANES, z + have, lane);
        pairs -= found;
        have += 2 * found;
        WARP_BARRIER;
      }
      if (lane < many)
        add_parts(own, noise, others, n, at + lane, residual[index[at + lane]],
                  z + lane * (FACTORS - 1), sums);
      have = take(z, needed, have, lane);
    }
    const double shape = SHAPE + 0.5 * (end - start);
    for (int k = 0; k < FACTORS; k++) {
      const double sum = TOTAL(sums[k]), draw = gamma(&state, shape);
      const double variance = ((SHAPE - 1.0) * level[k] + 0.5 * sum) / draw;
      if (lane == 0) noise[(first + i) * FACTORS + k] = (float)(variance > LEAST ? variance : LEAST);
    }
  }
}

// Normals for a block of coordinates of every feature, from the feature's stream; Z has a line of
// `features` numbers for each coordinate.
KERNEL feature_normals(long long features, int start, int width, uint64 key, float* Z) {
  EACH_THREAD(l, features) {
    uint64 state = stream(key, l);
    for (int d = 0; d < width; d += 2) {
      double a, b;
      normal_pair(&state, &a, &b);
      Z[(start + d) * features + l] = (float)a;
      if (d + 1 < width) Z[(start + d + 1) * features + l] = (float)b;
    }
  }
}

// The sum of squares of x over the rows that have a feature.
KERNEL square_sums(const long long* starts, const int* members, const float* x, long long features,
                   float* out) {
  EACH_WARP(l, features) {
    float total = 0.0f;
    for (long long k = starts[l] + lane; k < starts[l + 1]; k += LANES)
      total += x[members[k]] * x[members[k]];
    total = TOTAL(total);
    if (lane == 0) out[l] = total;
  }
}

// The sum over a block of four numbers of each thread, in an order that never changes.
__device__ __forceinline__ float4 block_total(float4 x, float4* partial, int thread) {
#ifdef HOST
  return x;
#else
  for (int o = 16; o; o >>= 1) {
    x.x += __shfl_xor_sync(~0u, x.x, o);
    x.y += __shfl_xor_sync(~0u, x.y, o);
    x.z += __shfl_xor_sync(~0u, x.z, o);
    x.w += __shfl_xor_sync(~0u, x.w, o);
  }
  if (thread % LANES == 0) partial[thread / LANES] = x;
  __syncthreads();
  float4 total = partial[0];
  for (int w = 1; w < (int)blockDim.x / LANES; w++) {
    const float4 y = partial[w];
    total = make_float4(total.x + y.x, total.y + y.y, total.z + y.z, total.w + y.w);
  }
  return total;
#endif
}

#define AHEAD 4  // members that a thread has in registers, of each of three features

struct Feature {  // what a thread needs of one
  int member[AHEAD];
  float old, square, normal;
};

// Ask for what is needed of feature l, whose members begin at `start` and end before `end`.
__device__ __forceinline__ void ask(Feature* one, long long l, long long features, long long start,
                                    long long end, const int* members, const float* squares,
                                    const float* Y, const float* Z, int thread) {
  if (l >= features) return;
#pragma unroll
  for (int u = 0; u < AHEAD; u++) {
    const long long k = start + thread + u * THREADS;
    one->member[u] = k < end ? members[k] : -1;
  }
  one->old = Y[l];
  one->square = squares[l];
  one->normal = Z[l];
}

// Draw the weights Y of every feature, one after the other. A block has one coordinate of all rows
// in shared memory: E, rows less their mean and the effects of their sets, beside x. E, Y and Z
// have a line for each coordinate. While a feature is worked on, the next two are on their way.
LARGE_KERNEL features_near(const long long* starts, const int* members, const float* x,
                           const float* squares, float strength, long long features,
                           long long rows, int coordinates, float* E, float* Y, const float* Z) {
  SHARED;
  float2* own = (float2*)shared_memory;
  EACH_BLOCK(c, coordinates) {
#ifndef HOST
    __shared__ float partial[2][THREADS / LANES];
#endif
    float* y = Y + c * features;
    const float* z = Z + c * features;
    for (long long i = thread; i < rows; i += THREADS) own[i] = make_float2(E[c * rows + i], x[i]);
    BARRIER;
    long long begin[4];  // of this feature and the next three
    for (int k = 0; k < 4; k++) begin[k] = starts[k < features ? k : features];
    Feature now, next, later;
    ask(&now, 0, features, begin[0], begin[1], members, squares, y, z, thread);
    ask(&next, 1, features, begin[1], begin[2], members, squares, y, z, thread);
    for (long long l = 0; l < features; l++) {
      ask(&later, l + 2, features, begin[2], begin[3], members, squares, y, z, thread);
      const long long following = starts[l + 4 < features ? l + 4 : features];
      const long long rest = begin[0] + AHEAD * THREADS + thread, end = begin[1];
      const float precision = now.square + strength, inverse = 1.0f / precision;
      const float apart = now.normal * sqrtf(inverse);
      float2 seen[AHEAD];
      float total = 0.0f;
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        seen[u] = now.member[u] < 0 ? make_float2(0.0f, 0.0f) : own[now.member[u]];
        total += seen[u].x * seen[u].y;
      }
      for (long long k = rest; k < end; k += THREADS) {
        const float2 other = own[members[k]];
        total += other.x * other.y;
      }
#ifndef HOST
      total = warp_total(total);
      if (thread % LANES == 0) partial[l % 2][thread / LANES] = total;
      __syncthreads();
      total = 0.0f;
#pragma unroll
      for (int w = 0; w < THREADS / LANES; w++) total += partial[l % 2][w];
#endif
      const float drawn = (total + now.square * now.old) * inverse + apart;
      const float change = drawn - now.old;
      if (thread == 0) y[l] = drawn;
#pragma unroll
      for (int u = 0; u < AHEAD; u++)
        if (now.member[u] >= 0) own[now.member[u]].x = seen[u].x - seen[u].y * change;
      for (long long k = rest; k < end; k += THREADS) {
        const int i = members[k];
        own[i].x -= own[i].y * change;
      }
      BARRIER;
      now = next;
      next = later;
      begin[0] = begin[1];
      begin[1] = begin[2];
      begin[2] = begin[3];
      begin[3] = following;
    }
    for (long long i = thread; i < rows; i += THREADS) E[c * rows + i] = own[i].x;
    BARRIER;
  }
}

// The same where a coordinate of all rows is too large for shared memory: four at a time, which lie
// beside each other in E. Y and Z have a line for each feature and four coordinates.
WIDE_KERNEL features_far(const long long* starts, const int* members, const float* x,
                          const float* squares, float strength, long long features, long long rows,
                          int fours, float4* E, float4* Y, const float4* Z) {
#ifdef HOST
  float4* partial = 0;
#else
  __shared__ float4 both[2][32];
#endif
  EACH_BLOCK(c, fours) {
    float4* own = E + c * rows;
    for (long long l = 0; l < features; l++) {
#ifndef HOST
      float4* partial = both[l % 2];
#endif
      const long long start = starts[l], end = starts[l + 1];
      float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      for (long long k = start + thread; k < end; k += WIDE) {
        const int i = members[k];
        const float4 e = own[i];
        total.x += x[i] * e.x;
        total.y += x[i] * e.y;
        total.z += x[i] * e.z;
        total.w += x[i] * e.w;
      }
      total = block_total(total, partial, thread);
      const float precision = squares[l] + strength, spread = sqrtf(1.0f / precision);
      const float4 old = Y[c * features + l], z = Z[c * features + l];
      const float4 drawn = make_float4((total.x + squares[l] * old.x) / precision + z.x * spread,
                                       (total.y + squares[l] * old.y) / precision + z.y * spread,
                                       (total.z + squares[l] * old.z) / precision + z.z * spread,
                                       (total.w + squares[l] * old.w) / precision + z.w * spread);
      for (long long k = start + thread; k < end; k += WIDE) {
        const int i = members[k];
        float4 e = own[i];
        e.x -= x[i] * (drawn.x - old.x);
        e.y -= x[i] * (drawn.y - old.y);
        e.z -= x[i] * (drawn.z - old.z);
        e.w -= x[i] * (drawn.w - old.w);
        own[i] = e;
      }
      BARRIER;
      if (thread == 0) Y[c * features + l] = drawn;
    }
  }
}
