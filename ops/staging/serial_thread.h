// A thread that runs tasks one after the other.
#ifndef OPS_STAGING_SERIAL_THREAD_H_
#define OPS_STAGING_SERIAL_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace tf_strategies {

class SerialThread {
 public:
  // when_idle: called on the thread while there is no task, until it returns false; then again after the next task.
  explicit SerialThread(std::function<bool()> when_idle = [] { return false; })
      : when_idle_(std::move(when_idle)), thread_([this] { Loop(); }) {}

  // Runs the tasks that are left, then ends the thread.
  ~SerialThread() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  SerialThread(const SerialThread&) = delete;
  SerialThread& operator=(const SerialThread&) = delete;

  // Runs the task on the thread, after all earlier tasks. Thread-safe; does not block.
  void Run(std::function<void()> task) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void Loop() {
    bool idle = false;
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        while (idle && !ends_ && tasks_.empty()) changed_.wait_for(lock, std::chrono::hours(1));
        if (!tasks_.empty()) {
          task = std::move(tasks_.front());
          tasks_.pop_front();
        } else if (idle) {
          return;
        }
      }
      idle = false;
      if (task != nullptr) {
        task();
      } else {
        idle = !when_idle_();
      }
    }
  }

  const std::function<bool()> when_idle_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ends_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace tf_strategies

#endif  // OPS_STAGING_SERIAL_THREAD_H_
