#pragma once
// Streams and events: work in order, and the moments other streams and the host wait for. No device
// type is named here.

#include <memory>

namespace ration {

class Stream;

/// A moment in a stream: complete once everything put into the stream before `Stream::record` is
/// done. Reusable: recording again moves it. An event never recorded is complete.
class Event {
 public:
  virtual ~Event() = default;
  [[nodiscard]] virtual bool complete() const = 0;
  /// Blocks the host until complete; throws what the stream's work threw.
  virtual void synchronize() = 0;
};

/// An ordered queue of work. Put into by one thread, the rank's own.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual void record(Event& event) = 0;
  /// Work put in later waits for the event; the host does not (but for the host's compute stream,
  /// which is the host).
  virtual void wait(Event& event) = 0;
  /// Blocks the host until everything put in is done; throws what it threw.
  virtual void synchronize() = 0;
  /// Does what can be done now without blocking, where nobody else does (see
  /// HostStream::Mode::deferred).
  virtual void poll() = 0;
  /// Gives up what is not done yet, so that the stream can be destroyed without waiting for peers:
  /// for a rank that an exception ends.
  virtual void abandon() = 0;
};

}  // namespace ration
