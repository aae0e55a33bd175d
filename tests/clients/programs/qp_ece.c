/* SPDX-License-Identifier: MIT
 *
 * Enhanced connection establishment: what a QP is granted, and what it answers to a peer's wishes.
 * qp_ece GID_INDEX
 */
#include "ends.h"

enum { kVendor = 0x15b3, kVersion = 0x10000000 };

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  struct end e;
  memset(&e, 0, sizeof e);
  e.gid_index = atoi(argv[1]);
  open_end(&e);
  make_qp(&e, &kTuning);
  struct ibv_ece ece;
  NEED(ibv_query_ece(e.qp, &ece) == 0);
  NEED(ece.vendor_id == kVendor && ece.options == kVersion && ece.comp_mask == 0);

  struct ibv_ece wish = {.vendor_id = kVendor, .options = kVersion | 0xff, .comp_mask = 1};
  NEED(ibv_set_ece(e.qp, &wish) == EINVAL);
  wish.comp_mask = 0;
  wish.vendor_id = 0x1234;
  NEED(ibv_set_ece(e.qp, &wish) == EINVAL);
  wish.vendor_id = 0;
  NEED(ibv_set_ece(e.qp, &wish) == EOPNOTSUPP);
  wish.vendor_id = kVendor;
  NEED(ibv_set_ece(e.qp, &wish) == 0);
  NEED(ibv_query_ece(e.qp, &ece) == 0 && ece.options == 0); /* not asked yet */
  e.peer = e.me;
  NEED(to_rts(&e, &kTuning) == 0);
  NEED(ibv_query_ece(e.qp, &ece) == 0);
  NEED(ece.options == kVersion); /* of all the wishes, what the device can do */

  /* A version that the device does not know. */
  make_qp(&e, &kTuning);
  wish.options = 0x20000001;
  NEED(ibv_set_ece(e.qp, &wish) == 0);
  e.peer = e.me;
  NEED(to_rts(&e, &kTuning) == 0);
  NEED(ibv_query_ece(e.qp, &ece) == 0 && ece.options == 0);
  return 0;
}
