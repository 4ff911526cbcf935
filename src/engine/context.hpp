#pragma once
// What the parts of an optimizer share.

#include <memory>
#include <vector>

#include <ration/config.hpp>
#include <ration/optimizer.hpp>

#include "comm/communicator.hpp"
#include "device/stream.hpp"
#include "layout/layout.hpp"
#include "state/state.hpp"

namespace ration {

struct Context {
  Config config;
  std::shared_ptr<Communicator> parent;  ///< the group the trainer gave
  // Gathers and reduces have a communicator and a stream each: neither waits for the other.
  std::shared_ptr<Communicator> gather;
  std::shared_ptr<Communicator> reduce;
  std::shared_ptr<Communicator> save;  ///< of saves beside the training
  std::unique_ptr<Stream> compute;
  std::unique_ptr<Stream> gather_stream;
  std::unique_ptr<Stream> reduce_stream;

  Layout layout;
  std::vector<Rule> groups;
  std::vector<UnitOptions> unit_options;
  std::vector<void*> trainer_data;  ///< per parameter; null: the library's
  std::vector<void*> trainer_gradient;
  std::vector<UnitMemory> unit_memory;
  std::vector<char> masked;  ///< per parameter: set_trainable(false)
  std::unique_ptr<State> state;

  [[nodiscard]] int rank() const { return parent->rank(); }
  [[nodiscard]] int world() const { return parent->size(); }
  [[nodiscard]] const ParameterInfo& parameter(int index) const { return layout.parameters[index]; }
  [[nodiscard]] const UnitInfo& unit(int index) const { return layout.units[index]; }
  /// Does what can be done without blocking: called at the beginning of every public call.
  void progress() const { reduce_stream->poll(); }
};

}  // namespace ration
