// SPDX-License-Identifier: MIT
// The uhca command.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/fault.h"
#include "prm/opcode.h"
#include "tool/commands.h"
#include "uapi/gpu.h"

namespace {

// Empty: it is right.
std::string wrong_fault_rule(const std::string& text) {
  auto rules = uhca::fault::parse(text);
  if (!rules) return "not understood: " + text;
  for (const uhca::fault::Rule& r : *rules) {
    uhca::prm::Opcode op;
    uhca::prm::CmdStatus status;
    if (!r.command.empty() && !uhca::prm::opcode_of(r.command.c_str(), &op)) return "no command " + r.command;
    if (!r.status.empty() && !uhca::prm::cmd_status_of(r.status.c_str(), &status)) return "no status " + r.status;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  using namespace uhca::tool;

  CLI::App app{
      "uhca: a ConnectX-class RDMA NIC and its whole software stack in user space.\n"
      "Programs started by it find mlx5_0; no hardware, no kernel module, no root."};
  app.require_subcommand(1);
  app.set_version_flag("--version", "uhca " UHCA_VERSION);

  LaunchOptions launch;
  auto add_program_options = [](CLI::App* sub, LaunchOptions& o) {
    sub->add_flag("--rdma-core", o.system_rdma_core, "Keep the system's own libibverbs and libmlx5 on top of uhca's kernel and device");
    sub->add_option("--netdev", o.netdev, "Interface whose MAC, addresses and MTU the port takes (default: the first that is up, else lo)");
    sub->add_flag("--framed", o.framed, "Between programs of this host, send frames instead of accessing their memory directly");
    sub->add_flag("--pin", o.pin,
                  "Bring in, keep and count every page that is registered, against the limit of locked memory (ulimit -l); else pages come "
                  "when they are used");
    sub->add_option("--impair", o.impair,
                    "A bad wire: what is sent is lost, doubled, reordered, damaged, delayed, paced (drop=0.01,dup=0.001,reorder=0.01,"
                    "corrupt=0.001,drop_at=3:7,delay=50us,rate=10g,seed=42; all optional)")
        ->type_name("RULES");
    sub->add_flag("--no-congestion-control", o.no_congestion_control,
                  "Do not mark packets as ECN-capable, answer no marks, do not slow down for notifications");
    sub->add_option("--gpu", o.gpu,
                    "A simulated GPU: amd (/dev/kfd, /dev/dri/renderD128) or nvidia (libcuda.so.1), then vram=SIZE, bar=small, p2p=off, "
                    "runtime-pm=on, with commas between")
        ->type_name("WORDS")
        ->check([](const std::string& words) {
          uhca::gpu::Config ignored;
          const char* wrong = uhca::gpu::parse_config(words, &ignored);
          return wrong ? std::string("--gpu: ") + wrong : std::string{};
        });
    sub->add_option(
           "--fault", o.faults,
           "Make the nth of something fail: a command of the firmware (cmd=CREATE_QP,nth=2,status=NO_RES; cmd=any), a pinning of the "
           "program's pages (pin,nth=1,errno=ENOMEM), an allocation of the driver (alloc). Several rules: with semicolons between")
        ->type_name("RULES")
        ->allow_extra_args(false)
        ->check([](const std::string& text) { return wrong_fault_rule(text); });
    sub->add_option("--remove-after", o.remove_after,
                    "Remove the device this long after the program first looked for one: DEVICE_FATAL, then EIO")
        ->type_name("SECONDS")
        ->check(CLI::NonNegativeNumber);
    sub->add_option("PROGRAM", o.program, "Program and its arguments (after --)")->required();
    sub->positionals_at_end();
    sub->prefix_command(false);
  };
  auto add_launch_options = [&](CLI::App* sub, LaunchOptions& o) {
    add_program_options(sub, o);
    sub->add_option("--log", o.log, "Log warnings and the reasons of refusals to FILE, or 'stderr'")->type_name("FILE");
    sub->add_option("--log-level", o.log_level, "error, warn, info or debug")->check(CLI::IsMember({"error", "warn", "info", "debug"}));
  };

  CLI::App* run = app.add_subcommand("run", "Run PROGRAM with uhca underneath");
  add_launch_options(run, launch);
  run->add_flag("--check", launch.check,
                "Look for mistakes in how PROGRAM uses verbs; report each with its rule and call sites (exit status 66)");

  std::string netdev;
  CLI::App* devs = app.add_subcommand("devices", "List the devices that a program sees here");
  devs->add_option("--netdev", netdev, "Interface behind the port");

  std::string program;
  CLI::App* doc = app.add_subcommand("doctor", "Say what on this machine helps or hinders");
  doc->add_option("PROGRAM", program, "Also check whether this program can be run");

  TraceOptions tr;
  CLI::App* trc = app.add_subcommand("trace", "Run PROGRAM and show the life of its work requests through every layer");
  add_launch_options(trc, tr.launch);
  trc->add_flag("--json", tr.format.json, "One JSON object a line instead of text");
  trc->add_option("--only", tr.format.only, "Follow one request, e.g. ibv_post_send#1 (the first call of that name)")->type_name("CALL#N");
  trc->add_option("--layers", tr.format.layers,
                  "Show only these layers: api,syscall,cmd,wqe,doorbell,frame,state,cqe,eqe,irq,wake,mad,cm,refuse");
  trc->add_option("--pcap", tr.launch.pcap, "Also capture every frame into FILE, for Wireshark")->type_name("FILE");
  trc->add_option("-o,--output", tr.output, "Write the trace to FILE (default: standard error)")->type_name("FILE");
  trc->add_option("--html", tr.html,
                  "Write a page instead: layers as lanes, each request as a path through them; nothing of it is loaded from elsewhere")
      ->type_name("FILE");
  trc->add_option("--perfetto", tr.perfetto, "Write JSON for ui.perfetto.dev instead (Chrome's trace event format)")->type_name("FILE");

  LaunchOptions failing;
  CLI::App* why_app = app.add_subcommand("why", "Run PROGRAM, which fails, and say why in one or two sentences");
  add_program_options(why_app, failing);

  TopOptions live;
  CLI::App* top_app =
      app.add_subcommand("top", "Show live counters of the port, of each program that uses it, and of their QPs. Ends with SIGINT");
  top_app->add_flag("--once", live.once, "One picture, with totals in place of rates");
  top_app->add_flag("--json", live.json, "One JSON object a picture, with all counters");
  top_app->add_option("-d,--interval", live.interval, "Seconds between two pictures (default: 1)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.05, 3600.0));
  top_app->add_option("-n,--count", live.count, "End after so many pictures")->type_name("N");

  std::vector<std::string> dump;
  CLI::App* cqe = app.add_subcommand("explain-cqe", "Say what the CQEs in a driver's dump mean");
  cqe->add_option("DUMP", dump, "The dump, or a file with it (default: standard input)");

  std::string structure;
  CLI::App* lay = app.add_subcommand("layout", "Print a structure of the hardware field by field: WQE segments, CQEs, contexts, commands");
  lay->add_option("STRUCTURE", structure, "For instance cqe64, qpc or create_qp_in (default: list the names)");

  PciOptions p;
  p.format.layers = "cmd,pci,refuse";
  p.format.at_once = true;
  CLI::App* pci_app =
      app.add_subcommand("pci",
                         "Serve the HCA as a PCI device that a virtual machine binds its own mlx5 driver to (vfio-user protocol).\n"
                         "With QEMU: -object memory-backend-memfd,id=mem,size=1G,share=on -machine q35,memory-backend=mem\n"
                         "  -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"PATH\"}}'\n"
                         "Clients are served one after another; a disconnect resets the device. Ends with SIGINT or SIGTERM.");
  pci_app->add_option("--socket", p.socket, "Unix socket to listen at")->required()->type_name("PATH");
  pci_app->add_option("--netdev", p.netdev,
                      "Connect the port to the wire of this interface: a tap device, or any other through a packet socket (default: the "
                      "host switch, as another function of the host's adapter)");
  pci_app->add_flag("--write-combining", p.write_combining,
                    "Offer BlueFlame: WQEs that come with their doorbells. Each costs a guest eight trapped stores instead of one");
  pci_app->add_flag("--trace", p.trace, "Print the driver's commands, decoded, and what happens on the bus");
  pci_app->add_option("--layers", p.format.layers,
                      "Layers of the trace: pci,cmd,wqe,doorbell,frame,state,cqe,eqe,irq,refuse (default: cmd,pci,refuse)");
  pci_app->add_flag("--json", p.format.json, "One JSON object a line instead of text");
  pci_app->add_option("-o,--output", p.output, "Write the trace to FILE (default: standard error)")->type_name("FILE");

  CLI11_PARSE(app, argc, argv);

  if (run->parsed()) return launch.check ? check(launch) : run_program(launch);
  if (devs->parsed()) return devices(netdev);
  if (doc->parsed()) return doctor(program);
  if (why_app->parsed()) return why(failing);
  if (top_app->parsed()) return top(live);
  if (cqe->parsed()) return explain_cqe(dump);
  if (lay->parsed()) return layout(structure);
  if (pci_app->parsed()) return pci(p);
  return trace(tr);
}
