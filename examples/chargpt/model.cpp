#include "model.hpp"

#include <algorithm>
#include <new>

#include "layers.hpp"

namespace chargpt {

template <class T>
Buffer<T>::Buffer(std::size_t count) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t bytes =
      (std::max<std::size_t>(1, count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<T*>(std::aligned_alloc(kAlignment, bytes)));
  if (!data_) throw std::bad_alloc();
  std::fill_n(data_.get(), count, T(0));
}

template <class T>
Model<T>::Model(const Shape& shape, int sequences)
    : shape_(shape), sequences_(sequences), tokens_(sequences * shape.sequence) {
  const auto tokens = static_cast<std::size_t>(tokens_);
  const auto width = static_cast<std::size_t>(shape.width);
  const auto sequence = static_cast<std::size_t>(shape.sequence);
  const auto vocabulary = static_cast<std::size_t>(shape.vocabulary);
  const std::size_t narrow = tokens * width;
  for (int k = 0; k < shape.layers; ++k) {
    blocks_.push_back({Buffer<T>(narrow), Buffer<T>(narrow), Buffer<T>(3 * narrow),
                       Buffer<T>(tokens * sequence * static_cast<std::size_t>(shape.heads)),
                       Buffer<T>(narrow), Buffer<T>(4 * narrow)});
  }
  last_ = Buffer<T>(narrow);
  normed_ = Buffer<T>(narrow);
  d_normed_ = Buffer<T>(narrow);
  active_ = Buffer<T>(4 * narrow);
  d_wide_ = Buffer<T>(4 * narrow);
  d_stream_ = Buffer<T>(narrow);
  logits_ = Buffer<T>(tokens * vocabulary);
  d_scores_ = Buffer<T>(sequence * sequence);
  d_wte_ = Buffer<T>(vocabulary * width);
}

template <class T>
void Model<T>::embed(std::span<const std::uint8_t> inputs,
                     const EmbeddingTensors<const T>& weights) {
  const Index width = shape_.width;
  T* const stream = shape_.layers > 0 ? blocks_[0].input : last_;
  for (Index n = 0; n < tokens_; ++n) {
    row_view(stream + n * width, width) =
        row_view(weights.wte + inputs[n] * width, width) +
        row_view(weights.wpe + n % shape_.sequence * width, width);
  }
}

template <class T>
void Model<T>::forward(int block, const BlockTensors<const T>& w) {
  const Index tokens = tokens_, width = shape_.width, sequence = shape_.sequence;
  const Index head = width / shape_.heads;
  const Block& b = blocks_[static_cast<std::size_t>(block)];

  layer_norm<T>(b.input, w.ln_1, normed_, tokens, width);
  linear<T>(normed_, w.attention, b.qkv, tokens, width, 3 * width);
  for (Index s = 0; s < sequences_; ++s) {
    for (Index h = 0; h < shape_.heads; ++h) {
      attention<T>(b.qkv + s * sequence * 3 * width + h * head,
                   b.probabilities + (s * shape_.heads + h) * sequence * sequence,
                   b.attended + s * sequence * width + h * head, sequence, width, head);
    }
  }
  linear<T>(b.attended, w.attention_projection, b.middle, tokens, width, width, b.input);

  layer_norm<T>(b.middle, w.ln_2, normed_, tokens, width);
  linear<T>(normed_, w.mlp, b.hidden, tokens, width, 4 * width);
  gelu<T>(b.hidden, active_, tokens * 4 * width);
  linear<T>(active_, w.mlp_projection, output_of(block), tokens, 4 * width, width, b.middle);
}

template <class T>
double Model<T>::loss(std::span<const std::uint8_t> targets, const Affine<const T>& ln_f,
                      const T* wte) {
  const Index width = shape_.width, vocabulary = shape_.vocabulary;
  layer_norm<T>(last_, ln_f, normed_, tokens_, width);
  view<T>(logits_, tokens_, vocabulary).noalias() =
      view<const T>(normed_, tokens_, width) * view(wte, vocabulary, width).transpose();
  double total = 0;
  const T scale = T(1) / T(tokens_);
  for (Index n = 0; n < tokens_; ++n) {
    auto row = row_view<T>(logits_ + n * vocabulary, vocabulary);
    const T wanted = row[targets[n]];
    const T largest = row.maxCoeff();
    row = (row - largest).exp();
    const T sum = row.sum();
    total += std::log(static_cast<double>(sum)) + static_cast<double>(largest - wanted);
    row *= scale / sum;
    row[targets[n]] -= scale;
  }
  return total / tokens_;
}

template <class T>
void Model<T>::loss_backward(const Affine<const T>& ln_f, const T* wte,
                             const Affine<T>& ln_f_gradients) {
  const Index width = shape_.width, vocabulary = shape_.vocabulary;
  view<T>(d_wte_, vocabulary, width).noalias() =
      view<const T>(logits_, tokens_, vocabulary).transpose() *
      view<const T>(normed_, tokens_, width);
  linear_backward<T>(logits_, wte, d_normed_, tokens_, width, vocabulary);
  std::fill_n(static_cast<T*>(d_stream_), tokens_ * width, T(0));
  layer_norm_backward<T>(last_, ln_f.weight, d_normed_, ln_f_gradients, d_stream_, tokens_, width);
}

template <class T>
void Model<T>::backward(int block, const BlockTensors<const T>& w, const BlockTensors<T>& g) {
  const Index tokens = tokens_, width = shape_.width, sequence = shape_.sequence;
  const Index head = width / shape_.heads;
  const Block& b = blocks_[static_cast<std::size_t>(block)];

  linear_backward<T>(d_stream_, w.mlp_projection.weight, d_wide_, tokens, 4 * width, width);
  gelu_backward<T>(b.hidden, d_wide_, active_, tokens * 4 * width);
  linear_gradients<T>(active_, d_stream_, g.mlp_projection, tokens, 4 * width, width);
  layer_norm<T>(b.middle, w.ln_2, normed_, tokens, width);
  linear_gradients<T>(normed_, d_wide_, g.mlp, tokens, width, 4 * width);
  linear_backward<T>(d_wide_, w.mlp.weight, d_normed_, tokens, width, 4 * width);
  layer_norm_backward<T>(b.middle, w.ln_2.weight, d_normed_, g.ln_2, d_stream_, tokens, width);

  linear_gradients<T>(b.attended, d_stream_, g.attention_projection, tokens, width, width);
  linear_backward<T>(d_stream_, w.attention_projection.weight, d_normed_, tokens, width, width);
  for (Index s = 0; s < sequences_; ++s) {
    for (Index h = 0; h < shape_.heads; ++h) {
      const Index start = s * sequence * 3 * width + h * head;
      attention_backward<T>(b.qkv + start,
                            b.probabilities + (s * shape_.heads + h) * sequence * sequence,
                            d_normed_ + s * sequence * width + h * head, d_scores_, d_wide_ + start,
                            sequence, width, head);
    }
  }
  layer_norm<T>(b.input, w.ln_1, normed_, tokens, width);
  linear_gradients<T>(normed_, d_wide_, g.attention, tokens, width, 3 * width);
  linear_backward<T>(d_wide_, w.attention.weight, d_normed_, tokens, width, 3 * width);
  layer_norm_backward<T>(b.input, w.ln_1.weight, d_normed_, g.ln_1, d_stream_, tokens, width);
}

template <class T>
void Model<T>::embed_backward(std::span<const std::uint8_t> inputs, const EmbeddingTensors<T>& g) {
  const Index width = shape_.width;
  row_view(g.wte, shape_.vocabulary * width) += row_view<T>(d_wte_, shape_.vocabulary * width);
  for (Index n = 0; n < tokens_; ++n) {
    const auto d = row_view<T>(d_stream_ + n * width, width);
    row_view(g.wte + inputs[n] * width, width) += d;
    row_view(g.wpe + n % shape_.sequence * width, width) += d;
  }
}

template class Buffer<float>;
template class Buffer<double>;
template class Model<float>;
template class Model<double>;

}  // namespace chargpt
