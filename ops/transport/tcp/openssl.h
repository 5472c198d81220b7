// The functions of OpenSSL that this transport calls, 1.1.1 or 3.x, loaded at run time. The library does not depend on OpenSSL.
//
// The prototypes are those of OpenSSL's manual pages, with types of our own for what is opaque there.
#ifndef OPS_TRANSPORT_TCP_OPENSSL_H_
#define OPS_TRANSPORT_TCP_OPENSSL_H_

#include <cstddef>
#include <string>

#include "ops/base/status.h"

namespace tf_strategies::tcp::openssl {

struct Ssl;
struct SslContext;
struct Method;
struct Certificates;
struct Bio;
struct BioMethod;

// Values of OpenSSL's headers, which do not change within its ABI.
constexpr int kFilePem = 1;
constexpr int kVerifyPeer = 0x01, kVerifyFailIfNoPeerCertificate = 0x02;
constexpr int kErrorWantRead = 2, kErrorWantWrite = 3;
constexpr long kVerifyOk = 0;
constexpr int kTls13 = 0x0304;
constexpr int kControlMode = 33, kControlSessionCache = 44, kControlLeastVersion = 123;
constexpr long kModePartialWrite = 0x01, kModeMovingBuffer = 0x02;
constexpr int kBioTypeSource = 0x0400 | 100;
constexpr int kBioControlFlush = 11;
constexpr int kBioReadRetry = 0x01 | 0x08, kBioWriteRetry = 0x02 | 0x08, kBioRetryFlags = 0x0f;

struct Api {
  const Method* (*TLS_method)();
  SslContext* (*SSL_CTX_new)(const Method*);
  void (*SSL_CTX_free)(SslContext*);
  long (*SSL_CTX_ctrl)(SslContext*, int command, long number, void* pointer);
  int (*SSL_CTX_set_num_tickets)(SslContext*, size_t);
  int (*SSL_CTX_set_ciphersuites)(SslContext*, const char*);
  void (*SSL_CTX_set_default_passwd_cb)(SslContext*, int (*)(char*, int, int, void*));
  int (*SSL_CTX_load_verify_locations)(SslContext*, const char* file, const char* folder);
  int (*SSL_CTX_use_certificate_chain_file)(SslContext*, const char*);
  int (*SSL_CTX_use_PrivateKey_file)(SslContext*, const char*, int type);
  int (*SSL_CTX_check_private_key)(const SslContext*);
  void (*SSL_CTX_set_verify)(SslContext*, int mode, int (*)(int, Certificates*));
  Ssl* (*SSL_new)(SslContext*);
  void (*SSL_free)(Ssl*);
  void (*SSL_set_bio)(Ssl*, Bio* reads, Bio* writes);
  int (*SSL_set1_host)(Ssl*, const char*);
  void (*SSL_set_accept_state)(Ssl*);
  void (*SSL_set_connect_state)(Ssl*);
  int (*SSL_do_handshake)(Ssl*);
  int (*SSL_read)(Ssl*, void*, int);
  int (*SSL_write)(Ssl*, const void*, int);
  int (*SSL_shutdown)(Ssl*);
  int (*SSL_get_error)(const Ssl*, int);
  long (*SSL_get_verify_result)(const Ssl*);
  BioMethod* (*BIO_meth_new)(int type, const char* name);
  int (*BIO_meth_set_read)(BioMethod*, int (*)(Bio*, char*, int));
  int (*BIO_meth_set_write)(BioMethod*, int (*)(Bio*, const char*, int));
  int (*BIO_meth_set_ctrl)(BioMethod*, long (*)(Bio*, int, long, void*));
  Bio* (*BIO_new)(const BioMethod*);
  void (*BIO_set_init)(Bio*, int);
  void (*BIO_set_data)(Bio*, void*);
  void* (*BIO_get_data)(Bio*);
  void (*BIO_set_flags)(Bio*, int);
  void (*BIO_clear_flags)(Bio*, int);
  unsigned long (*ERR_get_error)();
  void (*ERR_clear_error)();
  const char* (*ERR_reason_error_string)(unsigned long);
  const char* (*X509_verify_cert_error_string)(long);
};

// Loads the library on the first call. Sets *api, which stays valid. Returns an error that says what to install if there is none.
Status Load(const Api** api);

// Returns the reason of this thread's earliest error, and forgets all its errors; "" if there is none.
std::string TakeReason(const Api& api);

}  // namespace tf_strategies::tcp::openssl

#endif  // OPS_TRANSPORT_TCP_OPENSSL_H_
