#include "ops/transport/progress_thread.h"

#include "ops/base/cpu.h"
#include "ops/base/scheduling.h"

namespace tf_strategies {
namespace {

// How long the thread polls after the last event before it sleeps on the transport's event. Where ranks outnumber cores every
// microsecond is taken from a peer: 4 MB among 4 on two cores took 2.5 ms with 5 us, 4.5 ms with 60.
constexpr std::chrono::microseconds kSpin{50};
constexpr std::chrono::microseconds kSpinInCrowd{5};
// So long whoever polls keeps the core after an event, if there is one for each rank; then it offers it to others.
constexpr std::chrono::microseconds kKeepCore{20};
constexpr int kSleepMs = 50;  // while something is outstanding: deadlines are looked at so often
// While callers have lent their threads within such a time the thread parks, and the transport is not armed, so that peers do
// not signal it at every message. Not with a network, which may still have to be fed what it was given.
constexpr std::chrono::milliseconds kPark{2};
// A caller lends its thread so long at most, and while something comes so often.
constexpr std::chrono::milliseconds kCallerPolls{10};
constexpr std::chrono::milliseconds kCallerPollsWithoutEvent{1};

}  // namespace

ProgressThread::ProgressThread(Transport* transport, Work* work, Options options)
    : transport_(transport), work_(work), options_(options) {}

void ProgressThread::Start() {
  thread_ = std::thread([this] { Run(); });
}

void ProgressThread::Join() { thread_.join(); }

bool ProgressThread::PollOnce() {
  Lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  if (!work_->Ended()) Poll();
  const bool idle = work_->Moving() == 0 && !work_->Ended();
  Deliver(&lock);
  return idle;
}

bool ProgressThread::PollUntilIdle() {
  Lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || work_->Moving() > 0 || work_->Ended()) return false;
  const auto begin = Clock::now();
  auto last_event = begin;
  do {
    if (Poll()) {
      last_event = Clock::now();
    } else {
      Pause(last_event);
    }
  } while (work_->Moving() == 1 && completed_.empty() && last_event - begin < kCallerPolls &&
           Clock::now() - last_event < kCallerPollsWithoutEvent);
  const bool idle = work_->Moving() == 0 && !work_->Ended();
  if (idle) caller_polls_.fetch_add(1);
  Deliver(&lock);
  return idle;
}

void ProgressThread::WakeIfNotAwake() {
  if (state_.load() != State::kAwake) WakeUp();
}

// Ends the thread's wait, or its next one.
void ProgressThread::WakeUp() {
  {
    std::lock_guard<std::mutex> lock(parking_);
    unpark_ = true;
  }
  unparked_.notify_one();
  transport_->Wake();
}

void ProgressThread::Run() {
  if (options_.prefers_short_turns) PreferShortTurns();
  const auto spin = options_.crowded ? kSpinInCrowd : kSpin;
  auto last_event = Clock::now();
  for (;;) {
    Lock lock(mutex_);
    const bool moved = !work_->Ended() && Poll();
    if (work_->Ended()) return Deliver(&lock);
    if (moved) {
      last_event = Clock::now();
      Deliver(&lock);
    } else if (work_->Outstanding() > 0 && Clock::now() - last_event <= spin) {
      lock.unlock();
      Pause(last_event);
    } else if (options_.parks && CallersPoll() && work_->Outstanding() == 0) {
      Park(&lock);
    } else {
      Sleep(&lock);
    }
  }
}

bool ProgressThread::Poll() { return work_->Poll() || !completed_.empty(); }

// Calls the completions, which may submit again: not while the mutex is held.
void ProgressThread::Deliver(Lock* lock) {
  std::vector<std::pair<Done, Status>> completed;
  completed.swap(completed_);
  lock->unlock();
  for (auto& [done, status] : completed) done(status);
}

void ProgressThread::Pause(Clock::time_point last_event) const {
  if (options_.crowded || Clock::now() - last_event > kKeepCore) {
    std::this_thread::yield();
  } else {
    RelaxCpu();
  }
}

// Returns whether callers have lent their threads since the last time this was asked.
bool ProgressThread::CallersPoll() {
  const uint64_t before = std::exchange(caller_polls_before_, caller_polls_.load());
  return before != caller_polls_before_;
}

// Waits until the callers have not lent their threads for a while, or need this one. It leaves the mutex to them meanwhile.
void ProgressThread::Park(Lock* lock) {
  state_.store(State::kParked);
  lock->unlock();
  bool needed = work_->HasNews();
  while (!needed) {
    std::unique_lock<std::mutex> parking(parking_);
    needed = unparked_.wait_for(parking, kPark, [this] { return std::exchange(unpark_, false); }) ||
             !CallersPoll();
  }
  state_.store(State::kAwake);
}

void ProgressThread::Sleep(Lock* lock) {
  const int longest = work_->Outstanding() > 0 ? kSleepMs : options_.idle_sleep_ms;
  state_.store(State::kAsleep);
  bool needed;
  {
    std::lock_guard<std::mutex> parking(parking_);
    needed = std::exchange(unpark_, false);
  }
  needed = needed || work_->HasNews() || !transport_->Arm();
  lock->unlock();
  if (!needed) transport_->Wait(longest);
  state_.store(State::kAwake);
}

}  // namespace tf_strategies
