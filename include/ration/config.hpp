#pragma once
// What an optimizer is told at construction. Compared across ranks, but for `overlap`,
// `tile_elements` and the folders and sizes of `offload`, which change no bit.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ration/dtype.hpp>

namespace ration {

/// How the fp32 weights of a 16-bit model are kept: whole, or (bf16 only) as the bf16 weight and a
/// 16-bit residue, which together are the fp32 weight exactly and save 2 bytes a parameter.
enum class Master : std::uint8_t { fp32, split };

/// Element types of the parts of the model state.
struct Precision {
  DType parameter = DType::f32;  ///< the model's weights, unless a parameter names its own type
  std::optional<DType> gradient =
      std::nullopt;  ///< what the trainer writes; default: the parameter's type
  std::optional<DType> reduce =
      std::nullopt;  ///< what travels and is rounded to; default: bf16 for bf16, otherwise f32
  Master master = Master::fp32;
  DType moments = DType::f32;  ///< f32, or bf16 with stochastic rounding

  static Precision fp32() { return {}; }
  static Precision bf16() { return {.parameter = DType::bf16}; }
  static Precision fp16() { return {.parameter = DType::f16}; }
};

/// Where the micro-steps of one step are added up.
enum class Accumulation : std::uint8_t {
  local,   ///< in a whole fp32 buffer on each rank; one reduce, in the last micro-step (default at
           ///< stages 0 and 1)
  sharded  ///< reduced each micro-step and added to a fp32 shard (default at stages 2 and 3)
};

/// Dynamic loss scaling, for fp16. The trainer multiplies the loss by
/// `ShardedOptimizer::loss_scale()`.
struct LossScale {
  double initial = 1.0;  ///< 1: no scaling
  bool dynamic = false;  ///< back off on overflow, grow after `growth_interval` good steps
  double growth = 2.0;
  double backoff = 0.5;
  std::int64_t growth_interval = 2000;
  double minimum = 1.0;
  double maximum = 1ull << 24;

  static LossScale dynamic_fp16() { return {.initial = 65536.0, .dynamic = true}; }
};

/// Where a part of the model state rests between its uses. Host memory is the device's where the
/// device is a CPU.
enum class Tier : std::uint8_t { device, host, disk };

/// What is kept elsewhere than on the device; the same bits wherever it is.
struct Offload {
  /// Masters and moments. On disk they pass through memory in tiles at each step.
  Tier optimizer_state = Tier::device;
  /// Folders of swap files, one file a rank in each; state is striped over them. The files have no
  /// names: nothing stays behind, and jobs may share a folder.
  std::vector<std::string> directories = {};
  /// Memory for tiles that stay, beyond the few that are on their way.
  std::uint64_t resident_bytes = 0;
};

struct Config {
  /// 0 replicated (DDP), 1 optimizer state, 2 and gradients, 3 and parameters sharded (Rajbhandari
  /// et al. 2020, ZeRO).
  int stage = 1;
  Precision precision = {};
  /// The most micro-steps of one step; more than 1 plans the accumulators.
  int micro_steps = 1;
  std::optional<Accumulation> accumulation = std::nullopt;
  LossScale loss_scale = {};
  /// Stage 3: units gathered ahead of the one asked for. `prefetch + 1` gather slots are planned.
  int prefetch = 1;
  /// Stages 2 and 3: gradient buckets; a unit holds one from its first gradient until it is
  /// reduced.
  int buckets = 2;
  /// false: every reduce and gather is finished before the call that started it returns. The same
  /// bits. Wants the same units used on every rank that has a batch: where gathers are matched, a
  /// rank waiting for a unit that another skips is not met before the deadline.
  bool overlap = true;
  /// How many copies of this optimizer's state exist inside the parent of `ration::step(parent,
  /// ...)`.
  int replicas = 1;
  /// Plans the memory for saves beside the training (SaveOptions::asynchronous): a copy of what
  /// this rank saves.
  bool asynchronous_save = false;
  /// Elements the update visits at a time (rounded up to 1,024); 0: a flat at a time, on disk half
  /// a million. The same bits.
  std::size_t tile_elements = 0;
  Offload offload = {};
};

}  // namespace ration
