// SPDX-License-Identifier: MIT
// Completion and asynchronous events: one read() is one event; acknowledgements are counted in the object, where its destruction waits for
// them.
#include <unistd.h>

#include "user/verbs/internal.h"

using namespace uhca::verbs;

namespace {

template <class Object>
void acknowledge(Object* object, std::uint32_t Object::*counter, unsigned n) {
  pthread_mutex_lock(&object->mutex);
  object->*counter += n;
  pthread_cond_signal(&object->cond);
  pthread_mutex_unlock(&object->mutex);
}

enum class Element { kCq, kQp, kSrq, kWq, kPort };

Element element_of(enum ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR: return Element::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return Element::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return Element::kSrq;
    case IBV_EVENT_WQ_FATAL: return Element::kWq;
    default: return Element::kPort;
  }
}

}  // namespace

UHCA_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  ib_uverbs_comp_event_desc event;
  if (read(channel->fd, &event, sizeof event) != sizeof event) return -1;
  *cq = reinterpret_cast<ibv_cq*>(event.cq_handle);
  *cq_context = (*cq)->cq_context;
  get_ops((*cq)->context)->cq_event(*cq);
  return 0;
}

UHCA_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned int nevents) {
  acknowledge(cq, &ibv_cq::comp_events_completed, nevents);
}

UHCA_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  ib_uverbs_async_event_desc desc;
  if (read(context->async_fd, &desc, sizeof desc) != sizeof desc) return -1;
  event->event_type = static_cast<ibv_event_type>(desc.event_type);
  switch (element_of(event->event_type)) {
    case Element::kCq: event->element.cq = reinterpret_cast<ibv_cq*>(desc.element); break;
    case Element::kQp: event->element.qp = reinterpret_cast<ibv_qp*>(desc.element); break;
    case Element::kSrq: event->element.srq = reinterpret_cast<ibv_srq*>(desc.element); break;
    case Element::kWq: event->element.wq = reinterpret_cast<ibv_wq*>(desc.element); break;
    case Element::kPort: event->element.port_num = static_cast<int>(desc.element); break;
  }
  get_ops(context)->async_event(context, event);
  return 0;
}

UHCA_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  switch (element_of(event->event_type)) {
    case Element::kCq: acknowledge(event->element.cq, &ibv_cq::async_events_completed, 1); break;
    case Element::kQp: acknowledge(event->element.qp, &ibv_qp::events_completed, 1); break;
    case Element::kSrq: acknowledge(event->element.srq, &ibv_srq::events_completed, 1); break;
    case Element::kWq: acknowledge(event->element.wq, &ibv_wq::events_completed, 1); break;
    case Element::kPort: break;
  }
}
