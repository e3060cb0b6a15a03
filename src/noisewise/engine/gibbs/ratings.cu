// Levels and what goes on in time: steps/ordinal.py, and AR(1) of state_space.py. A warp has a row.

#define FAR 1e30
#define MOST_CUTS 64
#define NORMALS (3 * LANES + 2)

__device__ __forceinline__ void cut_points(const double* t, int many, int anchor, double* out) {
  out[0] = -FAR;
  out[many + 2] = FAR;
  out[anchor] = 0.0;
  for (int k = anchor - 1; k > 0; k--) out[k] = out[k + 1] - exp(t[k - 1]);
  for (int k = anchor + 1; k < many + 2; k++) out[k] = out[k - 1] + exp(t[k - 2]);
}

__device__ __forceinline__ double log_mass(double a, double b) {
  return log(b - a > TINY ? b - a : TINY);
}

// Move cut-points by one Metropolis step, then draw hidden values.
KERNEL draw_levels(const int* order, long long rows, const long long* starts, const int* level,
                   const float* mean, const float* root, double* widths, int many,
                   const double* centre, const double* spread, int anchor, double step, uint64 key,
                   float* latent, int* accepted) {
  PER_WARP(double, cuts, MOST_CUTS);
  PER_WARP(double, new_cuts, MOST_CUTS);
  PER_WARP(double, moved, MOST_CUTS);
  EACH_WARP(w, rows) {
    const long long i = order[w], first = starts[i], count = starts[i + 1] - starts[i];
    uint64 state = stream(key, i);
    double ratio = 0.0;
    for (int k = 0; k < many; k++) {
      double z, unused;
      normal_pair(&state, &z, &unused);
      const double s = spread[k], old = widths[i * many + k];
      const double next = old + step * z / sqrt(1.0 / (s * s) + 0.25 * count);
      const double before = (old - centre[k]) / s, after = (next - centre[k]) / s;
      ratio += 0.5 * (before * before - after * after);
      if (lane == 0) moved[warp][k] = next;
    }
    WARP_BARRIER;
    if (lane == 0) {
      cut_points(widths + i * many, many, anchor, cuts[warp]);
      cut_points(moved[warp], many, anchor, new_cuts[warp]);
    }
    WARP_BARRIER;
    double likelihood = 0.0;
    for (long long o = lane; o < count; o += LANES) {
      const double r = root[first + o], f = mean[first + o];
      const int k = level[first + o];
      double a, b, c, d;
      tails(r * (cuts[warp][k] - f), r * (cuts[warp][k + 1] - f), &a, &b);
      tails(r * (new_cuts[warp][k] - f), r * (new_cuts[warp][k + 1] - f), &c, &d);
      likelihood += log_mass(c, d) - log_mass(a, b);
    }
    ratio += TOTAL(likelihood);
    const bool taken = log(uniform(&state)) < ratio;
    const double* chosen = taken ? new_cuts[warp] : cuts[warp];
    for (long long o = lane; o < count; o += LANES) {
      const double r = root[first + o], f = mean[first + o];
      const int k = level[first + o];
      double a, b;
      const double side = tails(r * (chosen[k] - f), r * (chosen[k + 1] - f), &a, &b);
      double p = a + uniform_at(state, o + 1) * (b - a);
      p = p > TINY ? p : TINY;
      p = p < 1.0 - 1e-16 ? p : 1.0 - 1e-16;
      latent[first + o] = (float)(f + side * quantile(p) / r);
    }
    if (lane == 0) accepted[i] = taken;
    if (taken)
      for (int k = lane; k < many; k += LANES) widths[i * many + k] = moved[warp][k];
    WARP_BARRIER;
  }
}

// Log-likelihood, slope and curvature by the log of a scale on means and cut-points.
KERNEL scale_likelihood(const int* order, long long rows, const long long* starts,
                        const int* level, const float* mean, const float* root,
                        const double* widths, int many, int anchor, double log_scale, double* out) {
  PER_WARP(double, cuts, MOST_CUTS);
  EACH_WARP(w, rows) {
    const long long i = order[w];
    const double scale = exp(log_scale);
    if (lane == 0) cut_points(widths + i * many, many, anchor, cuts[warp]);
    WARP_BARRIER;
    double total = 0.0, slope = 0.0, curvature = 0.0;
    for (long long n = starts[i] + lane; n < starts[i + 1]; n += LANES) {
      const int k = level[n];
      const double r = root[n], f = mean[n];
      const double low = scale * r * (cuts[warp][k] - f), high = scale * r * (cuts[warp][k + 1] - f);
      double a, b, first = 0.0, second = 0.0;
      tails(low, high, &a, &b);
      const double mass = b - a > TINY ? b - a : TINY;
      if (high < FAR * 1e-6) {
        first += high * density(high);
        second += high * density(high) * (1.0 - high * high);
      }
      if (low > -FAR * 1e-6) {
        first -= low * density(low);
        second -= low * density(low) * (1.0 - low * low);
      }
      first /= mass;
      total += log(mass);
      slope += first;
      curvature += second / mass - first * first;
    }
    total = TOTAL(total);
    slope = TOTAL(slope);
    curvature = TOTAL(curvature);
    if (lane == 0) {
      out[3 * i] = total;
      out[3 * i + 1] = slope;
      out[3 * i + 2] = curvature;
    }
    WARP_BARRIER;
  }
}

#ifdef HOST
#define FROM(x, lane) (x)
#else
#define FROM(x, lane) __shfl_sync(~0u, x, lane)
#endif

// Log-likelihood of two pairs of phi and variance; lanes of even number have the first.
KERNEL ar1_log_likelihood(const int* order, long long rows, const long long* starts,
                          const int* index, const float* residual, const float* effect,
                          const float* root, const double* phi, const double* variance,
                          double* out) {
  EACH_WARP(w, rows) {
    const long long i = order[w], start = starts[i], end = starts[i + 1];
    for (int option = lane % 2; option < 2; option += LANES > 1 ? 2 : 1) {
      const double f = phi[option], v = variance[option], innovation = v * (1.0 - f * f);
      double mean = 0.0, spread = v, total = 0.0, scale = 1.0;
      for (long long at = start; at < end; at += LANES) {
        double seen = 0.0, weight = 0.0;
        if (at + lane < end) {
          const int n = index[at + lane];
          seen = (double)residual[n] + effect[n];
          weight = (double)root[n] * root[n];
        }
        const int many = end - at < LANES ? end - at : LANES;
        for (int t = 0; t < many; t++) {
          const double e = FROM(seen, t) - mean, wt = FROM(weight, t);
          const double gain = 1.0 + spread * wt, inverse = 1.0 / gain;
          total += wt * e * e * inverse;
          scale *= gain;
          if (scale > 1e200) {
            total += log(scale);
            scale = 1.0;
          }
          mean = f * (mean + spread * wt * inverse * e);
          spread = f * f * spread * inverse + innovation;
        }
      }
      if (lane < 2) out[2 * i + option] = -0.5 * (total + log(scale));
    }
  }
}

// Draw AR(1) effects; what they take up is taken from the residual. `means` and `variances` have
// room for what the filter finds, in the order of visits.
KERNEL draw_ar1(const int* order, long long rows, const long long* starts, const int* index,
                float* residual, float* effect, const float* root, double phi, double v, uint64 key,
                double* means, double* variances) {
  PER_WARP(double, normals, NORMALS);
  EACH_WARP(w, rows) {
    const long long i = order[w], start = starts[i], end = starts[i + 1];
    const double innovation = v * (1.0 - phi * phi);
    double mean = 0.0, variance = v;
    for (long long at = start; at < end; at += LANES) {
      double seen = 0.0, weight = 0.0, own_mean = 0.0, own_variance = 0.0;
      if (at + lane < end) {
        const int n = index[at + lane];
        seen = (double)residual[n] + effect[n];
        weight = (double)root[n] * root[n];
      }
      const int many = end - at < LANES ? end - at : LANES;
      for (int t = 0; t < many; t++) {
        const double e = FROM(seen, t) - mean, wt = FROM(weight, t);
        const double inverse = 1.0 / (1.0 + variance * wt);
        mean += variance * wt * inverse * e;
        variance *= inverse;
        if (t == lane) {
          own_mean = mean;
          own_variance = variance;
        }
        mean *= phi;
        variance = phi * phi * variance + innovation;
      }
      if (at + lane < end) {
        means[at + lane] = own_mean;
        variances[at + lane] = own_variance;
      }
    }
    WARP_BARRIER;
    uint64 state = stream(key, i);
    double* z = normals[warp];
    long long pairs = (end - start + 1) / 2;
    int have = 0;
    double after = 0.0;
    for (long long stop = end; stop > start; stop -= LANES) {  // lane 0 has the last one
      const int many = stop - start < LANES ? stop - start : LANES;
      while (have < many) {
        const int found = more_pairs(&state, pairs < LANES ? pairs : LANES, z + have, lane);
        pairs -= found;
        have += 2 * found;
        WARP_BARRIER;
      }
      double centre = 0.0, slope = 0.0;  // the value is centre + slope times the one after it
      const long long at = stop - 1 - lane;
      if (lane < many) {
        double own = variances[at];
        centre = means[at];
        if (at + 1 < end) {
          const double before = phi * phi * own + innovation;
          slope = own * phi / before;
          centre -= slope * phi * centre;
          own = own * innovation / before;
        }
        centre += sqrt(own) * z[lane];
      }
      double mine = 0.0;
      for (int t = 0; t < many; t++) {
        after = FROM(centre, t) + FROM(slope, t) * after;
        if (t == lane) mine = after;
      }
      if (lane < many) {
        const int n = index[at];
        residual[n] += effect[n] - (float)mine;
        effect[n] = (float)mine;
      }
      have = take(z, many, have, lane);
    }
  }
}

// Mean and variance of levels whose hidden values are normal; `widths` has a line for each user, and
// so many columns of the cells are a user's.
KERNEL level_moments(long long n, long long columns, const float* widths, int many, int anchor,
                     const float* mean, const float* variance, const float* levels,
                     float* expected, float* left) {
  EACH_THREAD(t, n) {
    double cuts[MOST_CUTS], logs[MOST_CUTS];
    const long long user = t / columns;
    for (int k = 0; k < many; k++) logs[k] = widths[user * many + k];
    cut_points(logs, many, anchor, cuts);
    const double root = 1.0 / sqrt((double)variance[t]);
    double first = 0.0, second = 0.0;
    for (int k = 0; k < many + 2; k++) {
      double a, b;
      tails(root * (cuts[k] - mean[t]), root * (cuts[k + 1] - mean[t]), &a, &b);
      first += (b - a) * levels[k];
      second += (b - a) * levels[k] * levels[k];
    }
    expected[t] = (float)first;
    left[t] = (float)(second - first * first > 0.0 ? second - first * first : 0.0);
  }
}

// Add what one draw says of rows with all columns. `product` has products of factors, to which
// biases are added; `total` sums means, clipped. With `moments`: sums of what the draw says less
// what the first one said, of its square with `extra` of a row, and of noise.
KERNEL add_draw(const float* product, long long rows, long long columns, const float* row_biases,
                const float* column_biases, float low, float high, const float* row_noise,
                const float* column_noise, float constant, int moments, int is_first,
                const float* extra, float* first, float* total, float* centre, float* square,
                float* noise) {
  EACH_THREAD(t, rows * columns) {
    const long long i = t / columns, j = t % columns;
    const float mean = product[t] + (row_biases[i] + column_biases[j]);
    total[t] += mean < low ? low : mean > high ? high : mean;
    if (!moments) continue;
    if (is_first) first[t] = mean;
    const float apart = mean - first[t];
    centre[t] += apart;
    square[t] += apart * apart + (extra[i] > 0.0f ? extra[rows + j] : 0.0f);
    float variance = constant;
    if (variance < 0.0f) {  // it has factors
      variance = 0.0f;
      for (int k = 0; k < FACTORS; k++)
        variance += row_noise[i * FACTORS + k] * column_noise[j * FACTORS + k];
      variance = variance > 1e-10f ? variance : 1e-10f;
    }
    noise[t] += variance;
  }
}
