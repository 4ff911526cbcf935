#include "offload/block_device.hpp"

#include <cstdlib>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "core/log.hpp"

namespace ration::offload {

namespace {

// RATION_IO: for who finds out what goes wrong.
DeviceOptions as_asked(DeviceOptions options) {
  const char* text = std::getenv("RATION_IO");
  const std::string_view asked = text ? text : "";
  if (asked == "buffered") options.direct = false;
  if (asked == "threads") {
    options.engine = Engine::threads;
  } else if (asked == "uring") {
    options.engine = Engine::uring;
  } else if (!asked.empty() && asked != "buffered") {
    throw InvalidArgument(
        fmt::format("RATION_IO is \"{}\", must be uring, threads or buffered", asked));
  }
  return options;
}

}  // namespace

std::unique_ptr<BlockDevice> make_device(const DeviceOptions& given) {
  const DeviceOptions options = as_asked(given);
  SwapFiles files(options.folders, options.bytes, options.direct);
  if (options.direct && !files.direct())
    log::info(
        "offload: a swap folder's file system has no direct transfers: the page cache is used");
  if (options.engine != Engine::threads) {
    if (auto device = make_uring(files, options.tickets)) return device;
    if (options.engine == Engine::uring)
      throw InvalidArgument("offload: io_uring is asked for and cannot be had here");
    log::info("offload: io_uring cannot be had here: transfers are made by threads");
  }
  return make_pool(std::move(files), options.tickets);
}

}  // namespace ration::offload
