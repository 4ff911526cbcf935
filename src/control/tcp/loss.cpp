#include "control/tcp/loss.hpp"

#include <chrono>

#include <fmt/format.h>

namespace ration::tcp {

Failure silent(int rank, const Process& process, const Connection& connection) {
  const std::chrono::duration<double> silence = Clock::now() - connection.heard();
  return {Failure::Kind::timeout,
          fmt::format("rank {} has not been heard of for {:.1f} s: it is stopped, or its host "
                      "cannot be reached {}",
                      rank, silence.count(), process.text())};
}

Failure lost(int rank, const Process& process, const Connection& connection,
             const Connection::End& end) {
  using Kind = Connection::End::Kind;
  if (end.kind == Kind::unreachable) return silent(rank, process, connection);
  const auto text =
      end.kind == Kind::closed
          ? fmt::format("rank {} has died: its connection was closed {}", rank, process.text())
          : fmt::format(
                "rank {} {} has sent what cannot be read: {}; is it another "
                "version of ration?",
                rank, process.text(), end.why);
  return {Failure::Kind::communication_error, text};
}

}  // namespace ration::tcp
