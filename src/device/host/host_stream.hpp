#pragma once
// Streams on the host. The engine's ordering logic is the same as on a GPU; only who does the work
// differs.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>

#include "core/signal.hpp"
#include "device/stream.hpp"

namespace ration {

/// A task is a callable `bool(bool may_block)`: true when done; false when it cannot go on yet,
/// which it may only say when it may not block. It is called again from where it was.
class HostStream final : public Stream {
 public:
  enum class Mode {
    immediate,  ///< the putting thread, at once: the host's compute stream
    deferred,   ///< the rank's thread, when it polls or waits: best where ranks fill the cores
    worker      ///< a thread of its own
  };

  HostStream(Mode mode, const char* name, std::size_t tasks = 256);
  ~HostStream() override;
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  template <class F>
  void enqueue(F&& function) {
    using Function = std::decay_t<F>;
    static_assert(sizeof(Function) <= Task::kBytes && alignof(Function) <= 16);
    if (mode_ == Mode::immediate) {
      function(true);
      return;
    }
    Task& task = claim();
    new (task.storage) Function(std::forward<F>(function));
    task.run = [](void* storage, bool may_block) {
      return (*static_cast<Function*>(storage))(may_block);
    };
    task.destroy = [](void* storage) { static_cast<Function*>(storage)->~Function(); };
    commit();
  }

  std::unique_ptr<Event> make_event() override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;
  void poll() override;
  void abandon() override;

  /// True in a worker whose stream was abandoned: what waits there gives up.
  static bool abandoned();

  [[nodiscard]] const char* name() const { return name_; }

  /// Polls every deferred stream that this thread made: what a rank does while it waits for
  /// something else, so that two ranks never wait for each other's deferred work.
  static void poll_thread();

 private:
  friend class HostEvent;
  struct Task {
    static constexpr std::size_t kBytes = 320;
    alignas(16) std::byte storage[kBytes];
    bool (*run)(void*, bool) = nullptr;
    void (*destroy)(void*) = nullptr;
  };

  Task& claim();  // the next free place of the ring; waits for one
  void commit();
  bool run_one(bool may_block);          // deferred: the oldest task; true when it is done
  void run_until(std::uint64_t ticket);  // blocks until `ticket` tasks are done; throws
  void work();
  void rethrow();
  void fail(std::exception_ptr error);

  const Mode mode_;
  const char* const name_;
  const int rank_;
  const std::uint64_t capacity_;
  std::unique_ptr<Task[]> ring_;
  std::atomic<std::uint64_t> put_{0};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::atomic<bool> abandoned_{false};
  std::exception_ptr error_;
  bool running_ = false;  // deferred: a task is on the stack; polls from inside it do nothing
  Signal work_signal_;
  Signal done_signal_;
  std::thread thread_;
};

}  // namespace ration
