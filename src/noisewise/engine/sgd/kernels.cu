// The hot loops on a GPU, in the letters of kernels.py; compiled when a model is first fitted.
//
// A warp visits observations one after the other. The row of the first mode stays in registers as
// long as it is the same ("held"); rows of the other modes come and go with every observation.
// Which mode is held is the plan's choice (gpu_plan.py). Rows are laid out as layout.py says; a
// mode whose bit is set in HALF has its factors, and nothing else, in half precision.
//
// `race` lets warps run as they like: a row that two of them change at once keeps the last change.
// `ring` deals rows into stripes, as strata.py does, and gives worker w the stripe w of the second
// mode for good. Stripes of the others go around: at step t worker w has stripe w + t, which worker
// w + 1 had at the step before. So it waits for that neighbour alone, and no two workers ever have
// the same row: the result has the same bits on every run. With more modes, t has a digit for each,
// and the same wait is enough (gpu_plan.py says why). Stripes have other numbers in every epoch: to
// visit them in the same order again and again costs accuracy.
//
// Told by the compiler's options: MODES, MEAN, DEVIATION (padded numbers of factors), FULL_STRIDE,
// HALF_STRIDE (bytes from row to row), PER_ROW (one AdaGrad sum per row), SHARES (rows have their
// own share of a penalty), BETA (0: 0, 1: a quarter, 2: a half, 3: any), HALF, RING, RESIDENT
// (blocks on a multiprocessor), STREAMED (rows of one warp alone leave the cache first), AHEAD (how many observations before its turn a row is fetched).

// What every kernel is told: rows and codes of the modes (of a third and further ones in `more`),
// values, and settings.
struct Work {
  Pointer rows[MODES], codes[MODES];
  const float* values;
  float rate, deviation_rate, l2, bias_l2, l1, delta, beta, variance;

  __device__ __forceinline__ int code(int m, Position n) const { return ((const int*)codes[m])[n]; }
};

#define WORK                                                                                      \
  Pointer rows0, Pointer rows1, Pointer codes0, Pointer codes1, const Pointer *more,              \
      const float *values, float rate, float deviation_rate, float l2, float bias_l2, float l1,   \
      float delta, float beta, float variance
#define MAKE_WORK                                                                                 \
  Work w;                                                                                         \
  w.rows[0] = rows0, w.rows[1] = rows1, w.codes[0] = codes0, w.codes[1] = codes1;                 \
  for (int m = 2; m < MODES; m++) w.rows[m] = more[m - 2], w.codes[m] = more[MODES - 4 + m];      \
  w.values = values, w.rate = rate, w.deviation_rate = deviation_rate, w.l2 = l2;                 \
  w.bias_l2 = bias_l2, w.l1 = l1, w.delta = delta, w.beta = beta, w.variance = variance;

__device__ __forceinline__ float weight_of(float s, float beta) {
  if (BETA == 0) return 1.0f;
  if (BETA == 1) return sqrtf(sqrtf(s));
  if (BETA == 2) return sqrtf(s);
  return powf(s, beta);
}

// One step of one row, given what multiplies it in the mean and in the variance.
template <bool LEARN, class R>
__device__ __forceinline__ void step(R& row, const Mean& x, const Deviation& y, float g, float h,
                                     int lane, const Work& w) {
  float slope = w.bias_l2 * row.share * row.bias - g;
  row.bias_sum += slope * slope;
  row.bias -= w.rate * slope * inverse_root(row.bias_sum);
  float a = w.l2 * row.share, rate = PER_ROW ? w.rate * inverse_root(row.mean_sum) : w.rate;
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < Mean::SIZE; k++) {
    slope = a * row.mean.x[k] - g * x.x[k];
    if (PER_ROW) {
      squares += slope * slope;
      row.mean.x[k] -= rate * slope;
    } else {
      row.mean_sums.x[k] += slope * slope;
      row.mean.x[k] -= rate * slope * inverse_root(row.mean_sums.x[k]);
    }
  }
  if (PER_ROW) row.mean_sum += total(squares) * (1.0f / (MEAN ? MEAN : 1));
  if (!LEARN) return;
  a = w.l1 * row.share, squares = 0.0f;
  rate = PER_ROW ? w.deviation_rate * inverse_root(row.deviation_sum) : w.deviation_rate;
#pragma unroll
  for (int k = 0; k < Deviation::SIZE; k++) {
    slope = h * y.x[k] + (Deviation::inside(k, lane) ? a : 0.0f);
    float change = rate * slope;
    if (PER_ROW) {
      squares += slope * slope;
    } else {
      row.deviation_sums.x[k] += slope * slope;
      change *= inverse_root(row.deviation_sums.x[k]);
    }
    row.deviation.x[k] = fmaxf(row.deviation.x[k] - change, 0.0f);
  }
  if (PER_ROW) row.deviation_sum += total(squares) * (1.0f / (DEVIATION ? DEVIATION : 1));
}

// The product of the factors of all rows but one.
template <class P> __device__ __forceinline__ P product(const P* parts, int without) {
  P out;
#pragma unroll
  for (int k = 0; k < P::SIZE; k++) {
    float x = 1.0f;
#pragma unroll
    for (int m = 0; m < MODES; m++)
      if (m != without) x *= parts[m].x[k];
    out.x[k] = x;
  }
  return out;
}

struct Tally {
  float squared, scaled;
};

template <bool LEARN, class Held, class Other>
__device__ __forceinline__ void observe(Held& held, Other* other, float value, int lane,
                                        const Work& w, Tally& tally) {
  Mean means[MODES];
  Deviation deviations[MODES];
  float dot = 0.0f, variance = 0.0f, biases = held.bias;
  means[0] = held.mean;
  if (LEARN) deviations[0] = held.deviation;
#pragma unroll
  for (int m = 1; m < MODES; m++) {
    means[m] = other[m - 1].mean;
    if (LEARN) deviations[m] = other[m - 1].deviation;
    biases += other[m - 1].bias;
  }
  Mean all = product(means, -1);
#pragma unroll
  for (int k = 0; k < Mean::SIZE; k++) dot += all.x[k];
  if (LEARN) {
    Deviation each = product(deviations, -1);
#pragma unroll
    for (int k = 0; k < Deviation::SIZE; k++) variance += each.x[k];
    variance = total(variance) + w.delta;
  } else {
    variance = w.variance;
  }
  float e = value - (biases + total(dot));
  float precision = 1.0f / variance, ratio = e * e * precision;
  float weight = weight_of(variance, w.beta) * precision;
  float g = weight * e, h = weight * 0.5f * (1.0f - fminf(ratio, 50.0f));
  tally.squared += e * e;
  if (LEARN) tally.scaled += ratio + logarithm(variance);
  step<LEARN>(held, product(means, 0), product(deviations, 0), g, h, lane, w);
#pragma unroll
  for (int m = 1; m < MODES; m++)
    step<LEARN>(other[m - 1], product(means, m), product(deviations, m), g, h, lane, w);
}

// Visit observations from the first to before the last, and add to squared error and likelihood.
template <bool LEARN>
__device__ __forceinline__ void visit(const Work& w, Position first, Position last, int lane,
                                      double* sums) {
  typedef Row<(HALF & 1) != 0, LEARN> Held;
  // In a ring of two modes, rows of the second are this worker's own.
  typedef Row<(HALF >> 1) != 0, LEARN, (RING && MODES == 2 && STREAMED)> Other;
  if (first >= last) return;
  Tally tally = {0.0f, 0.0f};
  Held held;
  Other other[MODES - 1];
  int now[MODES], next[MODES], at = -1;
#pragma unroll
  for (int m = 0; m < MODES; m++) next[m] = w.code(m, first);
  float value, coming = w.values[first];
  for (Position n = first; n < last; n++) {
#pragma unroll
    for (int m = 0; m < MODES; m++) now[m] = next[m];
    value = coming;
    if (now[0] != at) {
      if (at >= 0) held.store(w.rows[0], at, lane);
      at = now[0];
      held.load(w.rows[0], at, lane);
    }
#pragma unroll
    for (int m = 1; m < MODES; m++) other[m - 1].load(w.rows[m], now[m], lane);
    if (n + 1 < last) {
#pragma unroll
      for (int m = 0; m < MODES; m++) next[m] = w.code(m, n + 1);
      coming = w.values[n + 1];
    }
    if (AHEAD && n + AHEAD < last) {
#pragma unroll
      for (int m = 1; m < MODES; m++) Other::ahead(w.rows[m], w.code(m, n + AHEAD), lane);
    }
    observe<LEARN>(held, other, value, lane, w, tally);
#pragma unroll
    for (int m = 1; m < MODES; m++) other[m - 1].store(w.rows[m], now[m], lane);
  }
  held.store(w.rows[0], at, lane);
  if (lane == 0) sums[0] += tally.squared, sums[1] += tally.scaled;
}

// Run k is starts[k]:starts[k + 1]; runs are taken in an order of their own in every epoch.
template <bool LEARN>
__device__ __forceinline__ void race(const Work& w, Long worker, int lane, Long workers,
                                     const Position* starts, Long runs, Long stride, Long offset,
                                     double* sums) {
  for (Long n = worker; n < runs; n += workers) {
    Long k = (n * stride + offset) % runs;
    visit<LEARN>(w, starts[k], starts[k + 1], lane, sums + 2 * worker);
  }
}

// The block of a worker at a step, of which every mode but the second has a digit: a stripe of each
// mode, by its label in this epoch.
__device__ __forceinline__ Long block_of(Long worker, Long t, Long side, Long steps,
                                         const int* labels) {
  Long block = labels[side + worker] * steps, weight = 1;
#pragma unroll
  for (int m = 0; m < MODES; m++) {
    if (m == 1) continue;
    block += labels[m * side + (worker + t) % side] * weight;
    t /= side;
    weight *= side;
  }
  return block;
}

#ifndef HOST
// Once around. Where the blocks of the next steps begin, and what is in the next, is fetched early.
template <bool LEARN>
__device__ __forceinline__ void around(const Work& w, Long worker, int lane, Long side,
                                       const Position* starts, Long steps, const int* labels,
                                       unsigned int* progress, double* sums) {
  Position first[3], last[3];
#pragma unroll
  for (int k = 0; k < 2; k++) {
    Long block = block_of(worker, k % steps, side, steps, labels);
    first[k] = starts[block], last[k] = starts[block + 1];
  }
  const unsigned int* before = progress + (worker + 1) % side;
  for (Long t = 0; t < steps; t++) {
    Long block = block_of(worker, (t + 2) % steps, side, steps, labels);
    first[2] = starts[block], last[2] = starts[block + 1];
#pragma unroll
    for (int m = 0; m < MODES; m++)
      if (lane == m) early((const int*)w.codes[m] + first[1]);
    if (lane == MODES) early(w.values + first[1]);
    while (reached(before) < t) {}
    __syncwarp();
    visit<LEARN>(w, first[0], last[0], lane, sums + 2 * worker);
    __threadfence();
    __syncwarp();
    if (lane == 0) reach(progress + worker, (unsigned int)t + 1);
    first[0] = first[1], last[0] = last[1], first[1] = first[2], last[1] = last[2];
  }
}
#endif

template <bool LEARN>
__device__ __forceinline__ void moments(const Work& w, Long n, int lane, float* mean,
                                        float* variance) {
  typedef Row<false, LEARN> Plain;
  Plain row;
  Mean product;
  Deviation spread;
  float biases = 0.0f, dot = 0.0f, noise = 0.0f;
#pragma unroll
  for (int m = 0; m < MODES; m++) {
    const char* at = Plain::place(w.rows[m], w.code(m, (Position)n));
    biases += fetch((const float*)at);
    row.mean.template load<false, false>(at + Plain::HEADER, lane, 0.0f);
    if (LEARN) row.deviation.template load<false, false>(at + Plain::AT_DEVIATION, lane, 0.0f);
#pragma unroll
    for (int k = 0; k < Mean::SIZE; k++)
      product.x[k] = m ? product.x[k] * row.mean.x[k] : row.mean.x[k];
#pragma unroll
    for (int k = 0; k < Deviation::SIZE; k++)
      if (LEARN) spread.x[k] = m ? spread.x[k] * row.deviation.x[k] : row.deviation.x[k];
  }
#pragma unroll
  for (int k = 0; k < Mean::SIZE; k++) dot += product.x[k];
#pragma unroll
  for (int k = 0; k < Deviation::SIZE; k++)
    if (LEARN) noise += spread.x[k];
  dot = biases + total(dot);
  noise = LEARN ? w.delta + total(noise) : w.variance;
  if (lane == 0) mean[n] = dot, variance[n] = noise;
}

#ifdef HOST
#define KERNEL(name) extern "C" void name
#define EACH_WORKER(n) for (Long worker = 0, lane = 0; worker < (n); worker++)
#else
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(256, RESIDENT) name
#define EACH_WORKER(n)                                                                            \
  const Long worker = (blockIdx.x * (Long)blockDim.x + threadIdx.x) / LANES;                      \
  const int lane = threadIdx.x % LANES;                                                           \
  if (worker < (n))
#endif

#define RACE_TAKES                                                                                      \
  WORK, Long workers, const Position *starts, Long runs, Long stride, Long offset, double *sums
#define RACE_BODY(LEARN)                                                                          \
  MAKE_WORK EACH_WORKER(workers)                                                                  \
      race<LEARN>(w, worker, lane, workers, starts, runs, stride, offset, sums);

#if !RING
KERNEL(race_learn)(RACE_TAKES) { RACE_BODY(true) }
KERNEL(race_warmup)(RACE_TAKES) { RACE_BODY(false) }
#endif

// On a GPU every worker goes around on its own; on a CPU, all take a step after the other.
#define RING_TAKES                                                                                \
  WORK, Long side, const Position *starts, Long steps, const int *labels, unsigned int *progress, \
      double *sums
#ifdef HOST
#define RING_BODY(LEARN)                                                                          \
  MAKE_WORK for (Long t = 0; t < steps; t++) EACH_WORKER(side) {                                  \
    Long block = block_of(worker, t, side, steps, labels);                                        \
    visit<LEARN>(w, starts[block], starts[block + 1], lane, sums + 2 * worker);                   \
  }
#else
#define RING_BODY(LEARN)                                                                          \
  MAKE_WORK EACH_WORKER(side)                                                                     \
      around<LEARN>(w, worker, lane, side, starts, steps, labels, progress, sums);
#endif

#if RING
KERNEL(ring_learn)(RING_TAKES) { RING_BODY(true) }
KERNEL(ring_warmup)(RING_TAKES) { RING_BODY(false) }
#endif

#define PREDICT_TAKES WORK, Long workers, Long n, int learned, float *mean, float *variance_out

KERNEL(predict)(PREDICT_TAKES) {
  MAKE_WORK EACH_WORKER(workers) {
    for (Long k = worker; k < n; k += workers) {
      if (learned)
        moments<true>(w, k, lane, mean, variance_out);
      else
        moments<false>(w, k, lane, mean, variance_out);
    }
  }
}
