#pragma once
// How ranks go through a save or a load together: after each stretch that may fail here or there
// they exchange how it went, so that all go on or all throw the same.

#include <optional>
#include <string>
#include <string_view>

#include "control/control.hpp"
#include "core/failure.hpp"

namespace ration::checkpoint {

/// Ends a stretch: `failure` is what went wrong on this rank, if anything, `record` what it has to
/// say. Returns all ranks' records, one behind the other. Throws, on all ranks alike, the failure
/// of the lowest rank that has one ("rank R: ..." in front). Collective; throws also what
/// Control::fold throws.
Bytes agree(Control& control, std::string_view what, const std::optional<Failure>& failure,
            const Bytes& record = {});

/// Runs `stretch` and keeps what it throws. What ranks throw alike (Timeout, ...) goes on.
template <class Stretch>
std::optional<Failure> failure_of(const Stretch& stretch) {
  try {
    stretch();
    return std::nullopt;
  } catch (...) {
    return Failure::current();
  }
}

}  // namespace ration::checkpoint
