// Certificates for tests, made by the program `openssl`.
#ifndef TESTS_CORE_TRANSPORT_CERTIFICATES_H_
#define TESTS_CORE_TRANSPORT_CERTIFICATES_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace tf_strategies {

// A folder that lies in memory while this process lives.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/tfs_certificates_XXXXXX";
    const char* const made = mkdtemp(name);
    EXPECT_NE(made, nullptr);
    path_ = made == nullptr ? "" : made;
  }
  ~TemporaryFolder() {
    if (path_.empty()) return;
    EXPECT_EQ(std::system(("rm -r " + path_).c_str()), 0);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void MakeWithOpenssl(const std::string& folder, const std::string& command) {
  const std::string quiet = "cd " + folder + " && openssl " + command + " > log 2>&1";
  ASSERT_EQ(std::system(quiet.c_str()), 0) << command << ": see " << folder << "/log";
}

// Returns the folder of ca.crt, task.crt and task.key, made on the first call with these arguments.
//
// authority: those of one name trust one another. name: the alternative name of the certificate. days: how long it is valid.
inline std::string CertificateFolder(const std::string& authority = "first",
                                     const std::string& name = "DNS:tf-strategies", int days = 2) {
  static const std::string new_key = "req -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 ";
  static std::map<std::string, TemporaryFolder> authorities;
  static std::map<std::string, TemporaryFolder> tasks;
  const bool is_new = authorities.count(authority) == 0;
  const std::string& root = authorities[authority].path();
  if (is_new) {
    MakeWithOpenssl(root, new_key + "-x509 -keyout ca.key -out ca.crt -days 2 -subj /CN=" + authority +
                              " -addext basicConstraints=critical,CA:TRUE");
  }
  const std::string key = authority + name + std::to_string(days);
  const bool is_made = tasks.count(key) != 0;
  const std::string& folder = tasks[key].path();
  if (is_made) return folder;
  MakeWithOpenssl(folder, new_key + "-keyout task.key -out request -subj /CN=task");
  EXPECT_EQ(std::system(("echo subjectAltName=" + name + " > " + folder + "/names").c_str()), 0);
  MakeWithOpenssl(folder, "x509 -req -in request -CA " + root + "/ca.crt -CAkey " + root +
                              "/ca.key -CAcreateserial -extfile names -out task.crt -days " +
                              std::to_string(days));
  EXPECT_EQ(std::system(("cp " + root + "/ca.crt " + folder).c_str()), 0);
  return folder;
}

}  // namespace tf_strategies

#endif  // TESTS_CORE_TRANSPORT_CERTIFICATES_H_
