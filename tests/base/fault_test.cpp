// SPDX-License-Identifier: MIT
#include "base/fault.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace uhca::fault {
namespace {

TEST(Fault, RulesAreRead) {
  auto r = parse("cmd=CREATE_QP,nth=2,status=NO_RES;pin,nth=3,errno=EFAULT;alloc;cmd=any");
  ASSERT_TRUE(r.ok());
  ASSERT_EQ(r->size(), 4u);
  EXPECT_EQ((*r)[0].point, Point::kCommand);
  EXPECT_EQ((*r)[0].command, "CREATE_QP");
  EXPECT_EQ((*r)[0].nth, 2u);
  EXPECT_EQ((*r)[0].status, "NO_RES");
  EXPECT_EQ((*r)[1].point, Point::kPin);
  EXPECT_EQ((*r)[1].nth, 3u);
  EXPECT_EQ((*r)[1].err, EFAULT);
  EXPECT_EQ((*r)[2].point, Point::kAlloc);
  EXPECT_EQ((*r)[2].nth, 1u);
  EXPECT_EQ((*r)[2].err, ENOMEM);
  EXPECT_TRUE((*r)[3].command.empty());
  EXPECT_TRUE(parse("").ok());
}

TEST(Fault, WrongRulesAreRefused) {
  for (const char* bad : {"cmd", "cmd=", "nth=2", "pin=1", "pin,nth=0", "pin,nth=", "pin,nth=x", "pin,nth=-1", "pin,errno=NO",
                          "pin,status=LIM", "cmd=CREATE_QP,errno=ENOMEM", "cmd=CREATE_QP,status=", "alloc,pin", "page", ","})
    EXPECT_EQ(parse(bad).code(), EINVAL) << bad;
}

TEST(Fault, EachFiresOnce) {
  EXPECT_EQ(due(Point::kPin), 0);
  arm(Point::kPin, 2, EFAULT);
  arm(Point::kAlloc, 1, ENOMEM);
  arm(Point::kPin, 3, EAGAIN);
  EXPECT_EQ(due(Point::kPin), 0);
  EXPECT_EQ(due(Point::kPin), EFAULT);
  EXPECT_EQ(due(Point::kPin), EAGAIN);
  EXPECT_EQ(due(Point::kPin), 0);
  EXPECT_EQ(disarm(), 1u);
  EXPECT_EQ(due(Point::kAlloc), 0);
  EXPECT_EQ(disarm(), 0u);
}

}  // namespace
}  // namespace uhca::fault
