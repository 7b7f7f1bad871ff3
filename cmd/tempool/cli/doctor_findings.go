package cli

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/buildinfo"
	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/internal/loopback"
	"github.com/tempool/tempool/internal/redact"
	"github.com/tempool/tempool/policy"
	"github.com/tempool/tempool/spec"
)

// Levels of findings.
const (
	levelOK      = "ok"
	levelNote    = "note"
	levelWarning = "warning"
	levelProblem = "problem"
)

// finding is one result of tempool doctor.
type finding struct {
	Level   string `json:"level"`
	Check   string `json:"check"`   // which check it is of, one word for programs
	Subject string `json:"subject"` // what it is about
	Message string `json:"message"`
	Action  string `json:"action,omitempty"` // what to do
	// Runbooks are the pages about it, see policy.Runbook.
	Runbooks []string `json:"runbooks,omitempty"`
}

// Thresholds of the checks.
const (
	minTemporalMajor, minTemporalMinor = 1, 28 // updates that start their workflow
	minRetention                       = 24 * time.Hour
	maxSkew                            = 10 * time.Second
	// heartbeatDelay is how much older a heartbeat's content may be than its arrival.
	heartbeatDelay    = 2 * api.HostHeartbeatInterval
	certificateNotice = 14 * 24 * time.Hour
	// filesPerWorker and filesOfAgent are how many files an agent has open: pipes, sockets and the log of each process,
	// and its connections.
	filesPerWorker, filesOfAgent = 10, 1000
	problemFreeBytes             = 100 << 20
	warningFreeBytes             = 1 << 30
	maxAlerts                    = 3 // of a pool in its finding
)

// add adds a finding and returns it, which the next one may move.
func (d *doctorResult) add(level, check, subject, action, format string, args ...any) *finding {
	f := finding{Level: level, Check: check, Subject: subject, Message: redact.URLs(fmt.Sprintf(format, args...)),
		Action: action}
	switch level {
	case levelProblem:
		d.Problems++
	case levelWarning:
		d.Warnings++
	}
	if level != levelOK {
		f.Runbooks = []string{policy.Runbook(check)}
	}
	d.Findings = append(d.Findings, f)
	return &d.Findings[len(d.Findings)-1]
}

// server is false if the namespace cannot be used.
func (d *doctorResult) server(namespace string, server tempool.Server, err error) bool {
	switch {
	case api.CodeOf(err) == api.CodeInvalid:
		d.add(levelProblem, "namespace", "namespace "+namespace,
			"create it with: temporal operator namespace create --retention 72h "+namespace, "%s", message(err))
		return false
	case err != nil:
		d.add(levelProblem, "temporal", "Temporal", "check the server and the permissions of the API key or certificate",
			"%s", message(err))
		return false
	}
	var major, minor int
	known, _ := fmt.Sscanf(server.Version, "%d.%d", &major, &minor)
	if known == 2 && (major < minTemporalMajor || major == minTemporalMajor && minor < minTemporalMinor) {
		d.add(levelProblem, "temporal", "Temporal",
			fmt.Sprintf("upgrade the server to %d.%d or later", minTemporalMajor, minTemporalMinor),
			"version %s lacks update-with-start, which agents need to join", server.Version)
	} else {
		d.add(levelOK, "temporal", "Temporal", "", "version %s answers", server.Version)
	}
	if server.Retention > 0 && server.Retention < minRetention {
		d.add(levelWarning, "namespace", "namespace "+namespace, "temporal operator namespace update --retention 72h "+
			namespace,
			"closed workflows are kept for %s only, so tempool history --all reaches back no further",
			formatDuration(server.Retention))
	} else {
		d.add(levelOK, "namespace", "namespace "+namespace, "", "closed workflows are kept for %s",
			formatDuration(server.Retention))
	}
	return true
}

func (d *doctorResult) searchAttributes(missing []string, err error) {
	switch {
	case err != nil:
		d.add(levelWarning, "search_attributes", "search attributes",
			"ask the operator of the Temporal server whether tempool setup was run", "cannot be listed: %s", message(err))
	case len(missing) > 0:
		d.add(levelProblem, "search_attributes", "search attributes", "tempool setup", "missing: %s",
			strings.Join(missing, ", "))
	default:
		d.add(levelOK, "search_attributes", "search attributes", "", "all are registered")
	}
}

// agents checks which hosts have an agent, and their builds.
func (d *doctorResult) agents(namespace string, hosts []hostFacts, err error) {
	if err != nil {
		d.add(levelProblem, "agents", "hosts", "check that the namespace has visibility", "cannot be listed: %s",
			message(err))
		return
	}
	running := 0
	versions := map[string]string{} // a host by version
	for _, h := range hosts {
		subject := "host " + h.ID
		r := h.Heartbeat.Agent
		if h.HeardAt.IsZero() || r == nil {
			d.absent(h)
			continue
		}
		running++
		versions[r.Version] = h.ID
		if why := h.status.Draining; why != "" {
			d.add(levelNote, "agents", subject, "when it may have workers again: tempool hosts undrain "+h.ID,
				"takes no new workers: %s", why)
		}
		d.add(levelOK, "agents", subject, "", "agent %s, epoch %d, labels %s, capacity %d processes, runs %d", r.Version,
			r.Epoch, strings.Join(r.Labels, ","), r.Capacity, len(h.Heartbeat.Processes))
	}
	if running == 0 {
		d.add(levelProblem, "agents", "agents", "start one on each host: tempool agent --address … --namespace "+namespace,
			"none is running; pools do not react")
	}
	if len(versions) > 1 {
		var builds []string
		for version, host := range versions {
			builds = append(builds, version+" (such as on "+host+")")
		}
		d.add(levelWarning, "versions", "agents", "upgrade all agents to one version", "they run %d different builds: %s",
			len(builds), strings.Join(slices.Sorted(slices.Values(builds)), ", "))
	} else if _, same := versions[buildinfo.Read().String()]; len(versions) == 1 && !same {
		d.add(levelNote, "versions", "tempool", "use the tempool of the agents' version", "it is %s, unlike the "+
			"agents", buildinfo.Read().String())
	}
}

// absent is about a host without an agent.
func (d *doctorResult) absent(h hostFacts) {
	subject, again := "host "+h.ID, "restart its agent with --host-id "+h.ID
	switch {
	case h.statusErr != nil:
		d.add(levelWarning, "agents", subject, again, "no agent heartbeats, and its state is unknown: %s",
			message(h.statusErr))
	case h.status.State == api.HostLeft:
		d.add(levelNote, "agents", subject, "", "its agent was stopped at %s", h.status.Since.UTC().Format(time.RFC3339))
	default:
		d.add(levelWarning, "agents", subject, again+", or ignore this if the host is permanently gone",
			"its agent does not heartbeat (%s since %s, %s)", h.status.State,
			h.status.Since.UTC().Format(time.RFC3339), h.status.Machine)
	}
}

func (d *doctorResult) clock(h hostFacts, g tempool.GatewayCheck) {
	subject, act := "clock of host "+h.ID, "synchronize the clocks, for instance with chrony"
	behind := h.HeardAt.Sub(h.Heartbeat.Agent.Clock) // of the server
	if behind < -maxSkew || behind > maxSkew+heartbeatDelay {
		d.add(levelWarning, "clock", subject, act,
			"differs by about %s from that of the Temporal server; times in logs and histories do not match",
			formatDuration(behind.Abs()))
		return
	}
	if g.Err == nil && !g.Clock.IsZero() && g.At.Sub(g.Clock).Abs() > maxSkew {
		d.add(levelWarning, "clock", "clock of this machine", act, "differs by about %s from that of host %s",
			formatDuration(g.At.Sub(g.Clock).Abs()), h.ID)
	}
}

// limits checks what enforces and measures them.
func (d *doctorResult) limits(h hostFacts) {
	r := h.Heartbeat.Agent
	subject := "limits on host " + h.ID
	if linux := strings.HasPrefix(r.Platform, "linux/"); linux && len(r.Cgroups) == 0 {
		why := cmp.Or(r.NoCgroups, "no controller is delegated")
		act := "run the agent in a delegated cgroup v2: systemd's Delegate=yes, or a container with a writable one"
		if r.KeepsProcesses { // under systemd, its restart would fail with 219/CGROUP
			act = "an agent that keeps its processes has none in a unit of systemd; for limits by the kernel, run it without " +
				"--keep-processes and with Delegate=yes"
		}
		d.add(levelWarning, "cgroups", subject, act,
			"memory, CPU and processes are enforced by sampling, not by the kernel: %s", why)
	} else if !linux {
		d.add(levelNote, "cgroups", subject, "", "%s has no cgroups; memory, CPU and processes are enforced by sampling",
			r.Platform)
	} else {
		d.add(levelOK, "cgroups", subject, "", "enforced by cgroup v2: %s", strings.Join(r.Cgroups, ", "))
	}
	unreadable := 0
	for _, p := range h.Heartbeat.Processes {
		if p.Sample != nil && p.Sample.MemorySource == "rss" {
			unreadable++
		}
	}
	if unreadable > 0 && strings.HasPrefix(r.Platform, "linux/") {
		d.add(levelWarning, "pss", "memory on host "+h.ID, "run the agent as the workers' user, or with CAP_SYS_PTRACE",
			"the agent may not read the PSS of %s, so shared memory counts for each process", plural(unreadable, "worker"))
	}
	if need := int64(filesPerWorker*r.Capacity + filesOfAgent); r.OpenFiles > 0 && r.OpenFiles < need {
		d.add(levelWarning, "open_files", "open files on host "+h.ID, "raise the limit to "+strconv.FormatInt(need, 10)+
			" or more: LimitNOFILE= in the unit, or ulimit -n",
			"the agent may have %d open, and a capacity of %d needs about %d", r.OpenFiles, r.Capacity, need)
	}
}

func (d *doctorResult) disk(h hostFacts) {
	r := h.Heartbeat.Agent
	subject, act := "disk of host "+h.ID, "free space and inodes (df, df -i) on the disk of the state folder, mount it "+
		"writable if it is read-only, or move the folder with --state-dir"
	switch {
	case r.DiskTotalBytes == 0:
	case r.DiskFreeBytes < problemFreeBytes:
		d.add(levelProblem, "disk", subject, act, "%s are free; starts and sessions need space, and logs are dropped",
			format.Count(r.DiskFreeBytes))
	case r.DiskFreeBytes < warningFreeBytes:
		d.add(levelWarning, "disk", subject, act, "%s are free", format.Count(r.DiskFreeBytes))
	default:
		d.add(levelOK, "disk", subject, "", "%s are free", format.Count(r.DiskFreeBytes))
	}
}

// Values of GatewayCheck.Status.
const (
	gatewayFenced  = "fenced"
	gatewayClosing = "closing"
)

func (d *doctorResult) gateway(h hostFacts, g tempool.GatewayCheck, now time.Time) {
	r, subject := h.Heartbeat.Agent, "gateway of host "+h.ID
	own, _ := os.Hostname() // a machine without a name has no other that is called like it
	switch {
	case g.Err != nil && r.Hostname != own && onlyForItsMachine(r.Endpoint):
		d.add(levelNote, "gateway", subject,
			"to call it from other machines: tempool agent --listen ADDRESS with TLS and tokens (docs/security.md)",
			"%s serves its own machine only, so it was not checked from here", r.Endpoint)
		return
	case g.Err != nil:
		d.add(levelProblem, "gateway", subject,
			"check the address (--listen, --advertise), the firewall, and --ca-file for its certificate",
			"%s does not answer here: %s", r.Endpoint, message(g.Err))
		return
	case g.Status == gatewayFenced:
		d.add(levelProblem, "gateway", subject, "check the connection of that host to Temporal",
			"%s has not reached Temporal for so long that it serves no calls", r.Endpoint)
	case g.ControlPlane != "ok":
		d.add(levelProblem, "gateway", subject, "check the connection of that host to Temporal", "%s does not reach Temporal",
			r.Endpoint)
	case g.Status == gatewayClosing:
		d.add(levelWarning, "gateway", subject, "wait until the agent has stopped, and start it again if it is to serve",
			"%s is closing: its agent stops", r.Endpoint)
	case g.Refused != nil:
		d.add(levelWarning, "access", subject,
			"give tempool a token for that gateway: --token-file or TEMPOOL_TOKEN; tempool token add makes one", "%s "+
				"refuses tempool: %s",
			r.Endpoint, message(g.Refused))
	default:
		d.add(levelOK, "gateway", subject, "", "%s answers", r.Endpoint)
	}
	if left := g.CertificateExpires.Sub(now); !g.CertificateExpires.IsZero() && left < certificateNotice {
		d.add(levelWarning, "certificate", subject, "renew the certificate; the agent reads the new file within a second",
			"its certificate expires at %s", g.CertificateExpires.UTC().Format(time.RFC3339))
	}
	if r.Access == api.AccessOpen {
		d.add(levelNote, "access", subject,
			"to require a token: tempool agent --tokens FILE; to serve only the Unix socket: --listen ''",
			"any program on its machine may call and lease workers")
	}
}

// onlyForItsMachine reports whether no other machine can reach an endpoint.
func onlyForItsMachine(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && (u.Scheme == "unix" || loopback.Host(u.Hostname()))
}

// placement checks whether the workers of all pools have a host and serve, and as whom they run.
func (d *doctorResult) placement(hosts []hostFacts, pools []poolFacts, err error, now time.Time) {
	if err != nil {
		d.add(levelWarning, "pools", "pools", "", "cannot be listed: %s", message(err))
		return
	}
	labels, root := []string{}, false
	for _, h := range hosts {
		if r := h.Heartbeat.Agent; r != nil {
			root, labels = root || r.Root, append(labels, r.Labels...)
		}
	}
	for _, p := range pools {
		subject := "pool " + p.Pool
		if p.err != nil {
			d.add(levelProblem, "pools", subject, "check whether an agent runs workflows: tempool ps", "does not answer: %s",
				message(p.err))
			continue
		}
		if label := p.Status.Spec.Pool.Placement; !slices.Contains(labels, label) {
			d.add(levelProblem, "placement", subject, "start an agent with --labels "+label+", or change pool.placement",
				"no running agent has its label %q", label)
		} else {
			d.health(subject, p.Rollout, policy.NewReport(p.PoolWorkers, now))
		}
		if set := p.Status.Spec.Pool; root && set.Kind == spec.KindProcess && set.User == "" {
			d.add(levelWarning, "root", subject, "set pool.user, or run the agents as another user",
				"its workers run as root, like the agent")
		}
	}
}

// health is about a pool whose workers have hosts: what tempool pool status and the dashboard say of it, too.
func (d *doctorResult) health(subject string, rollout *api.Rollout, r policy.Report) {
	text, act := r.Overview.Summary, strings.Join(r.Recommendations, " ")
	switch {
	case len(r.Alerts) == 0 && rollout != nil && rollout.ByOperator:
		d.add(levelNote, "pools", subject, act, "%s", text).Runbooks = []string{policy.Runbook(api.AlertRolloutHalted)}
		return
	case len(r.Alerts) == 0:
		d.add(levelOK, "pools", subject, "", "%d of %d ready", r.Overview.Ready, r.Overview.Size)
		return
	}
	level := levelWarning
	if r.Alerts[0].Severity == policy.SeverityCritical {
		level = levelProblem
	}
	for i, alert := range r.Alerts {
		if i == maxAlerts {
			text += fmt.Sprintf(" And %d more.", len(r.Alerts)-i)
			break
		}
		if alert.Worker != "" {
			text += " " + alert.Worker + ":"
		}
		text += " " + alert.Text
	}
	if act == policy.NothingToDo {
		act = "tempool pool status " + r.Pool + " says why"
	}
	d.add(level, "pools", subject, act, "%s", text).Runbooks = r.Runbooks()
}
