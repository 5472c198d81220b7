// Quorum: decides which gradients count for the current step, and which worker applies them. Not thread-safe. It does
// not wait.
//
// A step has two phases. While it *gathers*, submissions arrive until the required number has counted. Then
// it is *applied*: its members are fixed, one worker (the applier) adds up their gradients and writes the
// weights, and Applied begins the next step. If the applier is lost, another worker applies the step with the
// same members; some of the weights may already be written.
//
// Source: Chen, Monga, Bengio and Jozefowicz 2016, "Revisiting distributed synchronous SGD", section 3 (backup workers).
#ifndef OPS_LEDGER_QUORUM_H_
#define OPS_LEDGER_QUORUM_H_

#include <cstdint>
#include <map>
#include <vector>

namespace tf_strategies::ledger {

class Quorum {
 public:
  int64_t step() const { return step_; }
  bool applying() const { return applying_; }
  bool has_submissions() const { return !submissions_.empty(); }
  int64_t size() const { return static_cast<int64_t>(submissions_.size()); }  // the number of submissions

  // For a step that gathers. A worker submits at most once in a step, unless its submission was removed.
  void Submit(int worker, int64_t rows);
  bool HasSubmitted(int worker) const { return submissions_.count(worker) > 0; }
  // Removes a submission, if there is one and the step gathers. Returns true if it was removed.
  bool Remove(int worker);
  // Begins to apply the step if at least max(required, 1) workers have submitted. The last one becomes the applier.
  bool Complete(int64_t required);

  // For a step that is being applied:
  bool IsMember(int worker) const { return applying_ && HasSubmitted(worker); }
  std::vector<int> Members() const;         // ascending
  int64_t Rows() const;                     // the number of rows of all members
  int applier() const { return applier_; }  // -1: no worker at present
  void SetApplier(int worker) { applier_ = worker; }
  void Applied();  // ends the step; the next one gathers
  void Abandon();  // removes all submissions; the same step gathers again

  // For a step without submissions.
  void SetStep(int64_t step) { step_ = step; }
  // Counts an update that does not belong to a quorum.
  void Advance() { ++step_; }

 private:
  int64_t step_ = 0;
  bool applying_ = false;
  std::map<int, int64_t> submissions_;  // rows, by worker
  int last_ = -1;                       // the last worker that submitted
  int applier_ = -1;
};

}  // namespace tf_strategies::ledger

#endif  // OPS_LEDGER_QUORUM_H_
