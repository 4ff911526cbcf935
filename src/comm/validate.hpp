#pragma once
// What an operation cannot mean, said before it is submitted; the same for every backend.

#include "comm/operation.hpp"

namespace ration {

/// Throws InvalidArgument naming the operation. `rank` and `size` are the communicator's.
void validate(const Operation& operation, int rank, int size);

/// f64 and i64 are never converted, an all_reduce's result is of its type: fills in what then
/// follows, so that a caller need not say it.
Operation normalized(const Operation& operation);

}  // namespace ration
