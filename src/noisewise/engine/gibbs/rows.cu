// Rows of a mode given everything else, as steps/rows.py has it: a block has a row.
//
// An observation is s = [root x, root, root (target - biases)], of RANK + 2 numbers. The lower half
// of sum s s' has the precision that observations add to a row, and in its last line their pull.
// Threads hold tiles of 8 x 8 of it in registers, SLICES of them for every tile; sums of up to
// FLUSH observations go into A, in double precision. A is overwritten by C with
// C diag(d)^-1 C' = A, d = diag(C); its last line, then, by the solution of the first half.

#define SIZE (RANK + 2)            // lines of A: factors, bias, pull
#define LINE ((RANK + 2) | 1)      // numbers from one line to the next
#define TILE 8
#define TILES ((SIZE + TILE - 1) / TILE)
#define PAIRS (TILES * (TILES + 1) / 2)
#ifdef HOST
#define SLICES 1
#define SIDE 1
#define GROUP 1
#define OWN PAIRS                  // tiles of a thread
#else
#define SLICES (THREADS / PAIRS > 16 ? 16 : THREADS / PAIRS)
#define SIDE 16                    // threads of a block are 16 x 16
#define GROUP (WIDTH >= 64 ? 16 : WIDTH >= 32 ? 8 : 4)  // threads of a dot product
#define OWN 1
#endif
#define STAGE (SLICES < 4 ? 32 : SLICES * 8)  // observations in shared memory
#define FLUSH (2048 / STAGE * STAGE)

struct Tile {
  SUM sum[TILE][TILE];
  int a, b;  // where it begins, a at or below b in the matrix
};

__device__ __forceinline__ void clear(Tile* tile) {
#pragma unroll
  for (int i = 0; i < TILE; i++)
#pragma unroll
    for (int j = 0; j < TILE; j++) tile->sum[i][j] = 0;
}

__device__ __forceinline__ void place(Tile* tile, int pair) {
  int line = 0;
  while ((line + 1) * (line + 2) / 2 <= pair) line++;
  tile->a = TILE * line;
  tile->b = TILE * (pair - line * (line + 1) / 2);
}

// Eight numbers that begin at a multiple of 16 bytes.
__device__ __forceinline__ void load(SUM* to, const SUM* from) {
  struct alignas(16) Four {
    SUM x[16 / sizeof(SUM)];
  };
  for (int k = 0; k < TILE * (int)sizeof(SUM) / 16; k++) {
    const Four four = ((const Four*)from)[k];
    for (int j = 0; j < 16 / (int)sizeof(SUM); j++) to[k * 16 / (int)sizeof(SUM) + j] = four.x[j];
  }
}

__device__ __forceinline__ void add_product(Tile* tile, const SUM* s) {
  SUM a[TILE], b[TILE];
  load(a, s + tile->a);
  load(b, s + tile->b);
#pragma unroll
  for (int i = 0; i < TILE; i++)
#pragma unroll
    for (int j = 0; j < TILE; j++) tile->sum[i][j] += a[i] * b[j];
}

__device__ __forceinline__ void add_to(double* A, Tile* tile) {
#pragma unroll
  for (int i = 0; i < TILE; i++)
#pragma unroll
    for (int j = 0; j < TILE; j++) {
      const int a = tile->a + i, b = tile->b + j;
      if (a < SIZE && b <= a) A[a * LINE + b] += (double)tile->sum[i][j];
      tile->sum[i][j] = 0;
    }
}

// Put observations from `start` on into S, with zeros after the last one.
__device__ void gather(SUM* S, long long start, long long end, const int* index, const int* others,
                       long long n, const float* factors, const float* biases, const float* root,
                       const float* target, int thread) {
  for (int t = thread; t < STAGE * (WIDTH / 4); t += THREADS) {
    const int k = t / (WIDTH / 4), quad = t % (WIDTH / 4);
    const long long at = start + k;
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    SUM r = 0;
    if (at < end) {
      r = root[index[at]];
      x = ((const float4*)(factors + (long long)others[at] * WIDTH))[quad];
      for (int o = 1; o < OTHERS; o++) {
        const float4 y = ((const float4*)(factors + (long long)others[o * n + at] * WIDTH))[quad];
        x = make_float4(x.x * y.x, x.y * y.y, x.z * y.z, x.w * y.w);
      }
    }
    const float four[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int d = 0; d < 4; d++)
      if (4 * quad + d < RANK) S[k * TILES * TILE + 4 * quad + d] = r * four[d];
  }
  for (int k = thread; k < STAGE; k += THREADS) {
    const long long at = start + k;
    SUM r = 0, y = 0;
    if (at < end) {
      const int own = index[at];
      float bias = 0.0f;
      for (int o = 0; o < OTHERS; o++) bias += biases[others[o * n + at]];
      r = root[own];
      y = r * (SUM)(target[own] - bias);
    }
    S[k * TILES * TILE + RANK] = r;
    S[k * TILES * TILE + RANK + 1] = y;
    for (int d = SIZE; d < TILES * TILE; d++) S[k * TILES * TILE + d] = 0;
  }
}

// A = C diag(d)^-1 C' with d = diag(C); and its last line h becomes C^-1 h times d.
__device__ void factorise(double* A, int thread) {
  const int down = thread / SIDE, right = thread % SIDE;
  for (int k = 0; k < SIZE - 2; k++) {
    BARRIER;
    const double inverse = 1.0 / A[k * LINE + k];
    for (int i = k + 1 + down; i < SIZE; i += SIDE) {
      const double f = A[i * LINE + k] * inverse;
      for (int j = k + 1 + right; j <= i && j < SIZE - 1; j += SIDE)
        A[i * LINE + j] -= f * A[j * LINE + k];
    }
  }
  BARRIER;
}

// x with C' diag(d)^-1 x = what is left: the draw. One warp does it.
__device__ void solve(const double* A, double* x, double* inverse, double* total, int lane) {
  for (int j = lane; j < SIZE - 1; j += LANES) {
    inverse[j] = 1.0 / A[j * LINE + j];
    x[j] = A[(SIZE - 1) * LINE + j] * inverse[j] + x[j] * sqrt(inverse[j]);
    total[j] = 0.0;
  }
  WARP_BARRIER;
  for (int k = SIZE - 2; k >= 0; k--) {
    const double own = x[k] - inverse[k] * total[k];
    WARP_BARRIER;
    for (int j = lane; j < k; j += LANES) total[j] += A[k * LINE + j] * own;
    if (lane == 0) x[k] = own;
    WARP_BARRIER;
  }
}

LARGE_KERNEL draw_rows(const int* order, long long rows, const long long* starts, const int* index,
                       const int* others, long long n, float* factors, float* biases,
                       long long first, const float* root, const float* target,
                       const double* centre, const float* effects, int has_effects,
                       const double* precision, uint64 key) {
  SHARED;
  double* A = (double*)shared_memory;
  double* x = A + SIZE * LINE;
  double* inverse = x + SIZE + 2 * LANES + 2;
  double* total = inverse + SIZE;
  SUM* S = (SUM*)(total + SIZE + (SIZE * LINE + SIZE) % 2);
  EACH_BLOCK(b, rows) {
    const long long i = order[b];
    Tile tiles[OWN];
    const int slice = thread / PAIRS;
#pragma unroll
    for (int t = 0; t < OWN; t++) {
      place(tiles + t, OWN > 1 ? t : thread % PAIRS);
      clear(tiles + t);
    }
    BARRIER;  // the row before is done
    for (int j = thread; j < SIZE - 1; j += THREADS)
      inverse[j] = centre[j] + (has_effects ? (double)effects[i * (RANK + 1) + j] : 0.0);
    for (int t = thread; t < (SIZE - 1) * (SIZE - 1); t += THREADS)
      A[t / (SIZE - 1) * LINE + t % (SIZE - 1)] = precision[t];
    if (thread / LANES == THREADS / LANES - 1) {
      uint64 state = stream(key, i);
      for (int have = 0; have < SIZE / 2; )
        have += more_pairs(&state, SIZE / 2 - have, x + 2 * have, thread % LANES);
    }
    BARRIER;
    for (int a = thread; a < SIZE - 1; a += THREADS) {
      double pull = 0.0;
      for (int j = 0; j < SIZE - 1; j++) pull += precision[j * (SIZE - 1) + a] * inverse[j];
      A[(SIZE - 1) * LINE + a] = pull;
    }
    const long long end = starts[i + 1];
    for (long long piece = starts[i]; piece < end; piece += FLUSH) {
      for (long long at = piece; at < piece + FLUSH && at < end; at += STAGE) {
        BARRIER;
        gather(S, at, end, index, others, n, factors, biases, root, target, thread);
        BARRIER;
        if (slice < SLICES)
          for (int k = slice; k < STAGE && at + k < end; k += SLICES)
#pragma unroll
            for (int t = 0; t < OWN; t++) add_product(tiles + t, S + k * TILES * TILE);
      }
      for (int turn = 0; turn < SLICES; turn++) {  // in an order that never changes
        BARRIER;
        if (slice == turn)
#pragma unroll
          for (int t = 0; t < OWN; t++) add_to(A, tiles + t);
      }
    }
    factorise(A, thread);
    if (thread < LANES) {
      solve(A, x, inverse, total, thread);
      const long long own = first + i;
      for (int d = thread; d < RANK; d += LANES) factors[own * WIDTH + d] = (float)x[d];
      if (thread == 0) biases[own] = (float)x[RANK];
    }
  }
}

// What rows make of observations, or of any cells: `places` has a line for each mode.
KERNEL fit(const int* places, long long n, const float* factors, const float* biases, float* fitted) {
  EACH_THREAD(t, n * GROUP) {
    const long long at = t / GROUP;
    const int part = t % GROUP;
    float total = 0.0f;
    for (int quad = part; quad < WIDTH / 4; quad += GROUP) {
      float4 x = ((const float4*)(factors + (long long)places[at] * WIDTH))[quad];
      for (int m = 1; m <= OTHERS; m++) {
        const float4 y = ((const float4*)(factors + (long long)places[m * n + at] * WIDTH))[quad];
        x = make_float4(x.x * y.x, x.y * y.y, x.z * y.z, x.w * y.w);
      }
      total += (x.x + x.y) + (x.z + x.w);
    }
#ifndef HOST
    const unsigned together = ((1u << GROUP) - 1) << (threadIdx.x % LANES / GROUP * GROUP);
    for (int o = GROUP / 2; o; o >>= 1) total += __shfl_xor_sync(together, total, o);
#endif
    if (part == 0) {
      for (int m = 0; m <= OTHERS; m++) total += biases[places[m * n + at]];
      fitted[at] = total;
    }
  }
}
