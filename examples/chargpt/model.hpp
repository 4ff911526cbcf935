#pragma once
// The arithmetic of a GPT-2: forward and backward, layer by layer, over weights and gradients that
// belong to somebody else. Knows nothing of optimizers or ranks.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "shape.hpp"

namespace chargpt {

/// A weight and its bias, or their gradients.
template <class T>
struct Affine {
  T* weight;
  T* bias;
  Affine(T* weight, T* bias) : weight(weight), bias(bias) {}
  explicit Affine(std::span<T* const> p) : Affine(p[0], p[1]) {}
};

template <class T>
struct EmbeddingTensors {
  T* wte;
  T* wpe;
  explicit EmbeddingTensors(std::span<T* const> p) : wte(p[0]), wpe(p[1]) {}
};

/// A block's tensors, from pointers in the order of `layers_of`.
template <class T>
struct BlockTensors {
  Affine<T> ln_1, attention, attention_projection, ln_2, mlp, mlp_projection;
  explicit BlockTensors(std::span<T* const> p)
      : ln_1{p[0], p[1]},
        attention{p[2], p[3]},
        attention_projection{p[4], p[5]},
        ln_2{p[6], p[7]},
        mlp{p[8], p[9]},
        mlp_projection{p[10], p[11]} {}
};

/// Memory of a fixed size on a 64-byte boundary, zero at first: Eigen's sums start at the first
/// aligned element, so an equal alignment is what makes equal inputs give equal bits.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t count);
  operator T*() const { return data_.get(); }  // NOLINT: it stands for its pointer

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T[], Free> data_;
};

/// Activations and scratch for a micro-batch of `sequences` sequences; nothing is allocated later.
/// One forward (embed, forward of each block in order, loss) is followed by one backward in reverse
/// order; every gradient is added to what is there. T is float, or double for tests.
template <class T>
class Model {
 public:
  Model(const Shape& shape, int sequences);

  /// Token and position embeddings of `sequences` x `sequence` tokens, each below the vocabulary.
  void embed(std::span<const std::uint8_t> inputs, const EmbeddingTensors<const T>& weights);
  void forward(int block, const BlockTensors<const T>& weights);
  /// Final norm, head (the token embedding again) and the mean cross-entropy over all tokens.
  double loss(std::span<const std::uint8_t> targets, const Affine<const T>& ln_f, const T* wte);

  /// The head's part of the token embedding's gradient is kept until `embed_backward`.
  void loss_backward(const Affine<const T>& ln_f, const T* wte, const Affine<T>& ln_f_gradients);
  void backward(int block, const BlockTensors<const T>& weights, const BlockTensors<T>& gradients);
  void embed_backward(std::span<const std::uint8_t> inputs, const EmbeddingTensors<T>& gradients);

 private:
  /// What a block's backward needs of its forward.
  struct Block {
    Buffer<T> input;          ///< tokens x width: the residual stream
    Buffer<T> middle;         ///< tokens x width: the same after attention
    Buffer<T> qkv;            ///< tokens x 3 width
    Buffer<T> probabilities;  ///< sequences x heads x sequence x sequence
    Buffer<T> attended;       ///< tokens x width
    Buffer<T> hidden;         ///< tokens x 4 width, before the GELU
  };

  Shape shape_;
  int sequences_;
  int tokens_;
  std::vector<Block> blocks_;
  Buffer<T> last_;               ///< tokens x width: out of the last block
  Buffer<T> normed_, d_normed_;  ///< tokens x width
  Buffer<T> active_, d_wide_;    ///< tokens x 4 width
  Buffer<T> d_stream_;           ///< tokens x width: gradient of the residual stream
  Buffer<T> logits_;             ///< tokens x vocabulary, then their gradient
  Buffer<T> d_scores_;           ///< sequence x sequence
  Buffer<T> d_wte_;              ///< vocabulary x width

  T* output_of(int block) { return block + 1 < shape_.layers ? blocks_[block + 1].input : last_; }
};

extern template class Model<float>;
extern template class Model<double>;

}  // namespace chargpt
