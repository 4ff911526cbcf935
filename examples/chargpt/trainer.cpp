#include "trainer.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace chargpt {

namespace {

/// What a checkpoint calls the place in the data.
constexpr const char* kItems = "items";

Shape with_vocabulary(Shape shape, const Text& text) {
  shape.vocabulary = static_cast<int>(text.vocabulary.size());
  return shape;
}

/// GPT-2's: weights normal, biases 0, norms 1.
ration::Initializer initial_values(std::uint64_t seed) {
  return [weights = ration::normal(0.02, seed), zeros = ration::constant(0.0f),
          ones = ration::constant(1.0f)](const ration::InitializeRun& run) {
    if (run.shape.size() >= 2) {
      weights(run);
    } else if (run.name.ends_with(".bias")) {
      zeros(run);
    } else {
      ones(run);
    }
  };
}

}  // namespace

Trainer::Trainer(const ration::World& world, const Options& options, const Text& text)
    : options_(options),
      world_(world.size()),
      optimizer_(world, options.config),
      layers_(layers_of(with_vocabulary(options.shape, text))),
      model_(with_vocabulary(options.shape, text), sequences_per_rank(options, world.size())),
      batches_(text.tokens, options.shape.sequence, sequences_per_rank(options, world.size()),
               ration::DistributedSampler(items_in(text.tokens.size(), options.shape.sequence),
                                          world.rank(), world.size(),
                                          {.shuffle = true, .seed = options.seed})) {
  register_units();
  begin();
}

void Trainer::begin() {
  const bool fresh = options_.resume.empty() ||
                     (options_.resume_if_any && !ration::checkpoint::find_latest(options_.resume));
  if (fresh) {
    optimizer_.initialize(initial_values(options_.seed));
    return;
  }
  const ration::LoadReport loaded = optimizer_.load(options_.resume);
  steps_ = static_cast<int>(loaded.step);
  // Items of all ranks, so that another number of ranks goes on at the same place.
  const auto items = loaded.extra.find(kItems);
  if (items == loaded.extra.end())
    throw std::runtime_error(loaded.folder + ": says nothing of the place in the data");
  items_ = std::stoll(items->second);
  batches_.seek(items_ / world_);
}

ration::SaveReport Trainer::save(bool beside) {
  return optimizer_.save(options_.save, {.step = steps_,
                                         .extra = {{kItems, std::to_string(items_)}},
                                         .keep = options_.keep,
                                         .asynchronous = beside});
}

void Trainer::register_units() {
  decayed_ = optimizer_.add_group(rule_of(options_, options_.weight_decay));
  plain_ = optimizer_.add_group(rule_of(options_, 0.0));
  if (options_.config.precision.parameter == ration::DType::bf16) {
    embedding_scratch_.emplace(std::span(layers_).first(1));
    scratch_.emplace(std::span(layers_).subspan(1));
  }
  for (const Layer& layer : layers_) {
    std::vector<ration::ParameterSpec> specs;
    for (const Tensor& tensor : layer.tensors) {
      specs.push_back({.name = tensor.name,
                       .shape = tensor.shape,
                       .group = tensor.decays() ? decayed_ : plain_});
      parameters_ += tensor.count();
    }
    // The head uses the token embedding a second time in the same pass.
    const bool embedding = &layer == &layers_.front();
    const ration::Unit unit = optimizer_.add_unit(layer.name, specs, {.keep_whole = embedding});

    std::optional<Scratch>& scratch = embedding ? embedding_scratch_ : scratch_;
    UnitTensors tensors(unit, layer, scratch ? &*scratch : nullptr);
    if (embedding) {
      embedding_ = std::move(tensors);
    } else if (&layer == &layers_.back()) {
      final_norm_ = std::move(tensors);
    } else {
      blocks_.push_back(std::move(tensors));
    }
  }
}

ration::StepReport Trainer::step(double learning_rate) {
  decayed_.set_learning_rate(learning_rate);
  plain_.set_learning_rate(learning_rate);
  double loss = 0;
  for (int i = 0; i < options_.micro_steps; ++i) loss += micro_step(i);
  ration::StepOptions step{.metrics = {loss / options_.micro_steps}};
  if (options_.clip > 0) step.clip_norm = options_.clip;
  ration::StepReport report = optimizer_.step(step);
  ++steps_;
  items_ += options_.batch;
  return report;
}

double Trainer::micro_step(int index) {
  batches_.next();
  const ration::MicroStep micro = optimizer_.micro_step(index, options_.micro_steps);

  {
    const ration::Gathered whole = embedding_->unit().gather();
    model_.embed(batches_.inputs(), EmbeddingTensors(embedding_->weights(whole)));
  }
  for (std::size_t k = 0; k < blocks_.size(); ++k) {
    const ration::Gathered whole = blocks_[k].unit().gather();
    model_.forward(static_cast<int>(k), BlockTensors(blocks_[k].weights(whole)));
  }
  double loss = 0;
  {
    const ration::Gathered norm = final_norm_->unit().gather();
    const ration::Gathered head = embedding_->unit().gather();
    loss = model_.loss(batches_.targets(), Affine(final_norm_->weights(norm)),
                       EmbeddingTensors(embedding_->weights(head)).wte);
  }

  micro.begin_backward();
  {
    const ration::Gathered norm = final_norm_->unit().gather();
    const ration::Gathered head = embedding_->unit().gather();
    model_.loss_backward(Affine(final_norm_->weights(norm)),
                         EmbeddingTensors(embedding_->weights(head)).wte,
                         Affine(final_norm_->gradients()));
    final_norm_->ready();
  }
  for (std::size_t k = blocks_.size(); k-- > 0;) {
    const ration::Gathered whole = blocks_[k].unit().gather();
    model_.backward(static_cast<int>(k), BlockTensors(blocks_[k].weights(whole)),
                    BlockTensors(blocks_[k].gradients()));
    blocks_[k].ready();  // from here the reduce runs while earlier blocks compute
  }
  model_.embed_backward(batches_.inputs(), EmbeddingTensors(embedding_->gradients()));
  embedding_->ready();
  return loss;
}

}  // namespace chargpt
