#pragma once
// A GPT-2 forward as its formulas read, one scalar at a time: the oracle of chargpt's model.

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "model.hpp"

namespace chargpt::reference {

using Rows = std::vector<std::vector<double>>;

inline Rows layer_norm(const Rows& x, const Affine<const double>& p) {
  Rows y = x;
  for (auto& row : y) {
    const double size = static_cast<double>(row.size());
    double mean = 0, variance = 0;
    for (const double v : row) mean += v / size;
    for (const double v : row) variance += (v - mean) * (v - mean) / size;
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = (row[i] - mean) / std::sqrt(variance + 1e-5) * p.weight[i] + p.bias[i];
    }
  }
  return y;
}

inline Rows linear(const Rows& x, const double* weight, const double* bias, std::size_t out) {
  Rows y(x.size(), std::vector<double>(out));
  for (std::size_t n = 0; n < x.size(); ++n) {
    for (std::size_t o = 0; o < out; ++o) {
      y[n][o] = bias ? bias[o] : 0;
      for (std::size_t i = 0; i < x[n].size(); ++i)
        y[n][o] += x[n][i] * weight[o * x[n].size() + i];
    }
  }
  return y;
}

inline void add(Rows& x, const Rows& y) {
  for (std::size_t n = 0; n < x.size(); ++n) {
    for (std::size_t i = 0; i < x[n].size(); ++i) x[n][i] += y[n][i];
  }
}

/// Causal attention over one sequence of rows query, key, value.
inline Rows attention(const Rows& qkv, std::size_t width, std::size_t heads) {
  const std::size_t size = width / heads;
  Rows y(qkv.size(), std::vector<double>(width, 0.0));
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t t = 0; t < qkv.size(); ++t) {
      std::vector<double> weight(t + 1);
      double total = 0;
      for (std::size_t s = 0; s <= t; ++s) {
        double score = 0;
        for (std::size_t i = 0; i < size; ++i) {
          score += qkv[t][h * size + i] * qkv[s][width + h * size + i];
        }
        total += weight[s] = std::exp(score / std::sqrt(static_cast<double>(size)));
      }
      for (std::size_t s = 0; s <= t; ++s) {
        for (std::size_t i = 0; i < size; ++i) {
          y[t][h * size + i] += weight[s] / total * qkv[s][2 * width + h * size + i];
        }
      }
    }
  }
  return y;
}

inline double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/// Mean cross-entropy over the sequences; `weights` are pointers in the order of `layers_of`.
inline double loss(const Shape& shape, std::span<const std::uint8_t> inputs,
                   std::span<const std::uint8_t> targets,
                   const std::vector<std::vector<const double*>>& weights) {
  const auto width = static_cast<std::size_t>(shape.width);
  const auto length = static_cast<std::size_t>(shape.sequence);
  const EmbeddingTensors<const double> embedding(weights.front());
  const Affine<const double> ln_f{std::span(weights.back())};
  double total = 0;
  for (std::size_t first = 0; first < inputs.size(); first += length) {
    Rows x(length, std::vector<double>(width));
    for (std::size_t t = 0; t < length; ++t) {
      for (std::size_t i = 0; i < width; ++i) {
        x[t][i] = embedding.wte[inputs[first + t] * width + i] + embedding.wpe[t * width + i];
      }
    }
    for (std::size_t k = 0; k < static_cast<std::size_t>(shape.layers); ++k) {
      const BlockTensors<const double> w(weights[k + 1]);
      const Rows qkv =
          linear(layer_norm(x, w.ln_1), w.attention.weight, w.attention.bias, 3 * width);
      add(x, linear(attention(qkv, width, static_cast<std::size_t>(shape.heads)),
                    w.attention_projection.weight, w.attention_projection.bias, width));
      Rows hidden = linear(layer_norm(x, w.ln_2), w.mlp.weight, w.mlp.bias, 4 * width);
      for (auto& row : hidden) {
        for (double& v : row) v = gelu(v);
      }
      add(x, linear(hidden, w.mlp_projection.weight, w.mlp_projection.bias, width));
    }
    const Rows logits = linear(layer_norm(x, ln_f), embedding.wte, nullptr,
                               static_cast<std::size_t>(shape.vocabulary));
    for (std::size_t t = 0; t < length; ++t) {
      double sum = 0;
      for (const double v : logits[t]) sum += std::exp(v);
      total += std::log(sum) - logits[t][targets[first + t]];
    }
  }
  return total / static_cast<double>(inputs.size());
}

}  // namespace chargpt::reference
