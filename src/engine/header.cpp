#include "engine/header.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "core/record.hpp"

namespace ration {

std::string_view name_of(Call call) {
  switch (call) {
    case Call::step:
      return "step";
    case Call::reduce_gradients:
      return "reduce_gradients";
    case Call::apply:
      return "apply";
    case Call::joint_step:
      return "joint step";
    case Call::save:
      return "save";
    case Call::load:
      return "load";
  }
  return "?";
}

namespace {

void write(const HeaderRecord& r, Bytes& bytes) {
  RecordWriter writer(bytes);
  writer.put(r.call);
  writer.put(r.step);
  writer.put(r.micro_steps);
  writer.put(r.options);
  writer.put_list(r.learning_rates);
  writer.put(r.clip_norm);
  writer.put(r.weight);
  writer.put(r.batches);
  writer.put(r.squared_norm);
  writer.put(static_cast<std::uint8_t>((r.stop ? 1 : 0) | (r.skip ? 2 : 0) | (r.changed ? 4 : 0) |
                                       (r.save_failed ? 8 : 0)));
  writer.put_list(r.used);
  writer.put_list(r.metrics);
  writer.put_text(r.refused);
  writer.put_list(r.forward_order);
  writer.put_list(r.backward_order);
  writer.put_list(r.reduce_order);
}

void read(const Bytes& bytes, HeaderRecord& r) {
  RecordReader reader(bytes);
  r.call = reader.get<Call>();
  r.step = reader.get<std::int64_t>();
  r.micro_steps = reader.get<std::int64_t>();
  r.options = reader.get<std::uint64_t>();
  reader.get_list(r.learning_rates);
  r.clip_norm = reader.get<double>();
  r.weight = reader.get<double>();
  r.batches = reader.get<std::int64_t>();
  r.squared_norm = reader.get<double>();
  const auto flags = reader.get<std::uint8_t>();
  r.stop = flags & 1;
  r.skip = flags & 2;
  r.changed = flags & 4;
  r.save_failed = flags & 8;
  reader.get_list(r.used);
  reader.get_list(r.metrics);
  r.refused = reader.get_text();
  reader.get_list(r.forward_order);
  reader.get_list(r.backward_order);
  reader.get_list(r.reduce_order);
}

std::string clip_text(double clip) {
  return clip < 0 ? std::string("none") : fmt::format("{}", clip);
}

// Throws for the first thing in which `theirs` cannot go with rank 0's `ours`.
void compare(int rank, const HeaderRecord& theirs, const HeaderRecord& ours) {
  if (theirs.call != ours.call) {
    throw CommunicationError(
        fmt::format("rank {}: calls {} (step {}), rank 0 calls {} (step {}); every rank must make "
                    "the same calls",
                    rank, name_of(theirs.call), theirs.step, name_of(ours.call), ours.step));
  }
  if (theirs.step != ours.step) {
    throw CommunicationError(fmt::format(
        "rank {}: is in step {}, rank 0 in step {}; every rank must make the same calls", rank,
        theirs.step, ours.step));
  }
  if (!theirs.refused.empty()) throw InvalidArgument(theirs.refused);
  const auto differ = [&](std::string_view what, const auto& a, const auto& b) {
    throw InvalidArgument(
        fmt::format("rank {}: {} is {}, rank 0 has {}; options must be the same on all ranks", rank,
                    what, a, b));
  };
  if (theirs.micro_steps != ours.micro_steps)
    differ("the number of micro-steps", theirs.micro_steps, ours.micro_steps);
  if (theirs.learning_rates.size() != ours.learning_rates.size()) {
    differ("the number of groups", theirs.learning_rates.size(), ours.learning_rates.size());
  }
  for (std::size_t g = 0; g < ours.learning_rates.size(); ++g) {
    if (theirs.learning_rates[g] != ours.learning_rates[g]) {
      differ(fmt::format("the learning rate of group {}", g), theirs.learning_rates[g],
             ours.learning_rates[g]);
    }
  }
  if (theirs.clip_norm != ours.clip_norm)
    differ("clip_norm", clip_text(theirs.clip_norm), clip_text(ours.clip_norm));
  if (theirs.metrics.size() != ours.metrics.size()) {
    differ("the number of metrics", theirs.metrics.size(), ours.metrics.size());
  }
  if (theirs.options != ours.options) {
    throw InvalidArgument(
        fmt::format("rank {}: rules, trainable parameters or the loss scale differ from rank 0's; "
                    "options must be the "
                    "same on all ranks",
                    rank));
  }
}

// The result begins with a status, so that every rank of the fold throws alike.
enum class Status : std::uint8_t { fine, communication, argument };

void combine(std::span<const Bytes> records, Bytes& bytes) {
  RecordWriter writer(bytes);
  // Their lists keep their capacity from one step to the next.
  thread_local HeaderRecord first;
  thread_local HeaderRecord total;
  thread_local HeaderRecord r;
  try {
    read(records[0], first);
    total = first;
    if (!first.refused.empty()) throw InvalidArgument(first.refused);
    for (std::size_t rank = 1; rank < records.size(); ++rank) {
      read(records[rank], r);
      compare(static_cast<int>(rank), r, first);
      total.weight += r.weight;
      total.batches += r.batches;
      total.squared_norm += r.squared_norm;
      total.stop = total.stop || r.stop;
      total.skip = total.skip || r.skip;
      total.changed = total.changed || r.changed;
      total.save_failed = total.save_failed || r.save_failed;
      for (std::size_t i = 0; i < std::min(total.used.size(), r.used.size()); ++i)
        total.used[i] |= r.used[i];
      for (std::size_t i = 0; i < total.metrics.size(); ++i) total.metrics[i] += r.metrics[i];
    }
    writer.put(Status::fine);
    writer.put(total.weight);
    writer.put(total.batches);
    writer.put(total.squared_norm);
    writer.put(static_cast<std::uint8_t>((total.stop ? 1 : 0) | (total.skip ? 2 : 0) |
                                         (total.changed ? 4 : 0) | (total.save_failed ? 8 : 0)));
    writer.put_list(total.used);
    writer.put_list(total.metrics);
    writer.put_list(total.forward_order);
    writer.put_list(total.backward_order);
    writer.put_list(total.reduce_order);
  } catch (const InvalidArgument& error) {
    writer = RecordWriter(bytes);
    writer.put(Status::argument);
    writer.put_text(error.what());
  } catch (const Error& error) {
    writer = RecordWriter(bytes);
    writer.put(Status::communication);
    writer.put_text(error.what());
  }
}

}  // namespace

HeaderResult exchange(Control& control, const HeaderRecord& record, HeaderBuffers& buffers,
                      std::uint64_t& bytes) {
  write(record, buffers.record);
  char text[64];
  const auto end =
      fmt::format_to_n(text, sizeof text, "header of {} {}", name_of(record.call), record.step).out;
  control.fold("step", buffers.record, combine, buffers.result, std::string_view(text, end));
  bytes += buffers.record.size() + buffers.result.size();
  RecordReader reader(buffers.result);
  const auto status = reader.get<Status>();
  if (status == Status::argument) throw InvalidArgument(reader.get_text());
  if (status == Status::communication) throw CommunicationError(reader.get_text());
  HeaderResult result;
  result.weight = reader.get<double>();
  result.batches = reader.get<std::int64_t>();
  result.squared_norm = reader.get<double>();
  const auto flags = reader.get<std::uint8_t>();
  result.stop = flags & 1;
  result.skip = flags & 2;
  result.changed = flags & 4;
  result.save_failed = flags & 8;
  reader.get_list(result.used);
  reader.get_list(result.metrics);
  reader.get_list(result.forward_order);
  reader.get_list(result.backward_order);
  reader.get_list(result.reduce_order);
  return result;
}

}  // namespace ration
