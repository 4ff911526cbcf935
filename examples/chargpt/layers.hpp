#pragma once
// The layers of the model on Eigen: each a forward and a backward over plain row-major arrays.
// All backwards add to the gradients of weights; what they do with `d_input` is said with each.

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "model.hpp"

namespace chargpt {

using Eigen::Index;

template <class T>
using Matrix =
    Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using MatrixOf = std::conditional_t<std::is_const_v<T>, const Matrix<T>, Matrix<T>>;

/// A row-major matrix over memory of somebody else; `stride` elements from row to row.
template <class T>
auto view(T* data, Index rows, Index columns) {
  return Eigen::Map<MatrixOf<T>>(data, rows, columns);
}
template <class T>
auto view(T* data, Index rows, Index columns, Index stride) {
  return Eigen::Map<MatrixOf<T>, 0, Eigen::OuterStride<>>(data, rows, columns,
                                                          Eigen::OuterStride<>(stride));
}
template <class T>
auto row_view(T* data, Index columns) {
  using Row = Eigen::Array<std::remove_const_t<T>, 1, Eigen::Dynamic>;
  return Eigen::Map<std::conditional_t<std::is_const_v<T>, const Row, Row>>(data, columns);
}

/// output = input weight' + bias (+ residual, where given); input is rows x in, output rows x out.
template <class T>
void linear(const T* input, const Affine<const T>& p, T* output, Index rows, Index in, Index out,
            const T* residual = nullptr) {
  const auto bias = row_view(p.bias, out);
  for (Index n = 0; n < rows; ++n) {
    if (residual) {
      row_view(output + n * out, out) = row_view(residual + n * out, out) + bias;
    } else {
      row_view(output + n * out, out) = bias;
    }
  }
  view(output, rows, out).noalias() += view(input, rows, in) * view(p.weight, out, in).transpose();
}

/// Gradients of weight and bias.
template <class T>
void linear_gradients(const T* input, const T* d_output, const Affine<T>& gradients, Index rows,
                      Index in, Index out) {
  view(gradients.weight, out, in).noalias() +=
      view(d_output, rows, out).transpose() * view(input, rows, in);
  auto bias = row_view(gradients.bias, out);
  for (Index n = 0; n < rows; ++n) bias += row_view(d_output + n * out, out);
}

/// d_input = d_output weight.
template <class T>
void linear_backward(const T* d_output, const T* weight, T* d_input, Index rows, Index in,
                     Index out) {
  view(d_input, rows, in).noalias() = view(d_output, rows, out) * view(weight, out, in);
}

/// Mean and reciprocal deviation of a row (Ba et al. 2016).
template <class T>
struct Moments {
  T mean, scale;
  template <class Row>
  explicit Moments(const Row& x) : mean(x.mean()) {
    scale = T(1) / std::sqrt((x - mean).square().mean() + T(1e-5));
  }
};

template <class T>
void layer_norm(const T* input, const Affine<const T>& p, T* output, Index rows, Index width) {
  const auto weight = row_view(p.weight, width);
  const auto bias = row_view(p.bias, width);
  for (Index n = 0; n < rows; ++n) {
    const auto x = row_view(input + n * width, width);
    const Moments<T> m(x);
    row_view(output + n * width, width) = (x - m.mean) * m.scale * weight + bias;
  }
}

/// Adds to `d_input`; overwrites `d_output` (it serves as scratch).
template <class T>
void layer_norm_backward(const T* input, const T* weights, T* d_output, const Affine<T>& gradients,
                         T* d_input, Index rows, Index width) {
  const auto weight = row_view(weights, width);
  auto weight_gradient = row_view(gradients.weight, width);
  auto bias_gradient = row_view(gradients.bias, width);
  for (Index n = 0; n < rows; ++n) {
    const auto x = row_view(input + n * width, width);
    auto dy = row_view(d_output + n * width, width);
    const Moments<T> m(x);
    const auto normal = (x - m.mean) * m.scale;
    bias_gradient += dy;
    weight_gradient += dy * normal;
    dy *= weight;
    const T mean = dy.mean();
    const T slope = (dy * normal).mean();
    row_view(d_input + n * width, width) += (dy - mean - normal * slope) * m.scale;
  }
}

inline constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2 / pi)
inline constexpr double kGeluCubic = 0.044715;

/// The tanh form of the GELU (Hendrycks and Gimpel 2016).
template <class T>
void gelu(const T* input, T* output, Index count) {
  constexpr Index kPiece = 512;
  for (Index i = 0; i < count; i += kPiece) {
    const Index size = std::min(kPiece, count - i);
    const auto x = row_view(input + i, size);
    auto y = row_view(output + i, size);
    y = T(0.5) * x * (T(1) + (x * (T(kGeluScale) + T(kGeluScale * kGeluCubic) * x * x)).tanh());
  }
}

/// Turns `d_output`, in place, into the gradient of `input`, and gives the forward's output once
/// more: it is cheaper to compute again than to keep.
template <class T>
void gelu_backward(const T* input, T* d_output, T* output, Index count) {
  constexpr Index kPiece = 512;
  for (Index i = 0; i < count; i += kPiece) {
    const Index size = std::min(kPiece, count - i);
    const auto x = row_view(input + i, size);
    auto y = row_view(output + i, size);
    auto dy = row_view(d_output + i, size);
    y = (x * (T(kGeluScale) + T(kGeluScale * kGeluCubic) * x * x)).tanh();
    dy *= T(0.5) * (T(1) + y) +
          T(0.5) * x * (T(1) - y * y) * (T(kGeluScale) + T(3 * kGeluScale * kGeluCubic) * x * x);
    y = T(0.5) * x * (T(1) + y);
  }
}

/// Softmax in place over the first `visible` of `columns` elements; the others become 0.
template <class T>
void causal_softmax(T* row, Index visible, Index columns) {
  // Whole vectors are cheaper than a scalar tail: the exponential of up to 15 hidden scores is
  // thrown away.
  const Index padded = std::min(columns, (visible + 15) / 16 * 16);
  const T largest = row_view(row, visible).maxCoeff();
  auto values = row_view(row, padded);
  values = (values - largest).exp();
  row_view(row + visible, columns - visible).setZero();
  const T sum = values.sum();
  values *= T(1) / sum;
}

/// Causal self-attention of one head of one sequence (Vaswani et al. 2017). `qkv` points at the
/// head's queries; keys and values are `width` and 2 `width` further; its rows are 3 `width` apart.
template <class T>
void attention(const T* qkv, T* probabilities, T* output, Index sequence, Index width, Index head) {
  const auto query = view(qkv, sequence, head, 3 * width);
  const auto key = view(qkv + width, sequence, head, 3 * width);
  const auto value = view(qkv + 2 * width, sequence, head, 3 * width);
  auto p = view(probabilities, sequence, sequence);
  p.noalias() = query * key.transpose();
  p *= T(1) / std::sqrt(T(head));
  for (Index t = 0; t < sequence; ++t) {
    causal_softmax(probabilities + t * sequence, t + 1, sequence);
  }
  view(output, sequence, head, width).noalias() = p * value;
}

/// Writes the head's part of `d_qkv`, laid out as `qkv`; `d_scores` is scratch.
template <class T>
void attention_backward(const T* qkv, const T* probabilities, const T* d_output, T* d_scores,
                        T* d_qkv, Index sequence, Index width, Index head) {
  const auto query = view(qkv, sequence, head, 3 * width);
  const auto key = view(qkv + width, sequence, head, 3 * width);
  const auto value = view(qkv + 2 * width, sequence, head, 3 * width);
  const auto p = view(probabilities, sequence, sequence);
  const auto dy = view(d_output, sequence, head, width);
  auto ds = view(d_scores, sequence, sequence);
  view(d_qkv + 2 * width, sequence, head, 3 * width).noalias() = p.transpose() * dy;
  ds.noalias() = dy * value.transpose();
  const T scale = T(1) / std::sqrt(T(head));
  for (Index t = 0; t < sequence; ++t) {
    const auto row = row_view(probabilities + t * sequence, sequence);
    auto d_row = row_view(d_scores + t * sequence, sequence);
    const T mean = (row * d_row).sum();
    d_row = row * (d_row - mean) * scale;
  }
  view(d_qkv, sequence, head, 3 * width).noalias() = ds * key;
  view(d_qkv + width, sequence, head, 3 * width).noalias() = ds.transpose() * query;
}

}  // namespace chargpt
