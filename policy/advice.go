package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/lifecycle"
)

// The thresholds of alerts and recommendations.
const (
	muchFailed       = 0.05            // share of calls
	enoughCalls      = 20              // minimum number of calls for a share to count
	manyRestarts     = 3               // of a worker since it was created
	nearMemoryLimit  = 0.8             // share of rotation.max_memory
	unlikeSiblings   = 2.0             // times the median memory
	noticeableMemory = 64 << 20        // bytes; less is no problem
	stuck            = 2 * time.Minute // in a transient state
	longIdle         = time.Hour       // uptime without a request
	shownReason      = 160             // runes of a reason in a sentence
)

// NothingToDo is the only recommendation of a report without any other.
const NothingToDo = "Nothing to do."

// alerts lists the problems, worst first.
func alerts(p pool) []Alert {
	list := []Alert{}
	inService := slices.ContainsFunc(p.Workers, func(w api.Worker) bool { return w.State.InService() })
	if !inService && p.Size > 0 && !p.Status.Stopping {
		list = append(list, Alert{SeverityCritical, "", "No worker of the pool is in service.", Runbook("pool_down")})
	}
	if p.Status.StartsPaused != "" {
		list = append(list, Alert{SeverityCritical, "", sentence(p.Status.StartsPaused), Runbook(api.AlertStartsHeld)})
	}
	if p.Rollout.Failed() {
		list = append(list, Alert{SeverityWarning, "", "The rolling restart has " + sentence(p.Rollout.Halted),
			Runbook(api.AlertRolloutHalted)})
	}
	if refused, share := p.refused(); refused != "" {
		text := fmt.Sprintf("%.0f %% of the calls of the last minute found no worker: %s.", 100*share, refused)
		list = append(list, Alert{SeverityCritical, "", text, Runbook("calls_refused")})
	}
	for _, w := range p.Workers {
		list = append(list, workerAlerts(w, p.at)...)
	}
	slices.SortStableFunc(list, func(a, b Alert) int { return cmp.Compare(a.Severity, b.Severity) }) // critical is first
	return list
}

// refused is how many calls a second no worker took in the last minute, by code, and their share of all calls; "" if
// they are few.
func (p pool) refused() (rates string, share float64) {
	r := p.LastMinute
	if r == nil || r.CallsPerSecond == 0 {
		return "", 0
	}
	var each []string
	for _, code := range []api.Code{api.CodeQueueFull, api.CodeQueueTimeout, api.CodeNoWorkers} {
		if rate := r.ErrorsPerSecond[string(code)]; rate > 0 {
			each, share = append(each, fmt.Sprintf("%.2g %s a second", rate, code)), share+rate/r.CallsPerSecond
		}
	}
	if share <= muchFailed {
		return "", 0
	}
	return strings.Join(each, ", "), share
}

// killedProcesses counts the processes that did not stop within pool.stop_grace. Those that were killed with a
// cancelled call were not asked to stop.
func killedProcesses(workers []api.Worker) (n int64) {
	for _, w := range workers {
		n += max(0, w.EndedByOutcome[string(lifecycle.Killed)]-w.RestartsByReason[string(api.CauseCutCall)])
	}
	return n
}

func workerAlerts(w api.Worker, at time.Time) []Alert {
	var list []Alert
	warn := func(kind, format string, values ...any) {
		list = append(list, Alert{SeverityWarning, w.Worker, fmt.Sprintf(format, values...), Runbook(kind)})
	}
	lasted := time.Duration(0)
	if !w.Since.IsZero() {
		lasted = at.Sub(w.Since)
	}
	switch {
	case w.Error != "":
		warn("no_answer", "It could not be queried: %s", sentence(w.Error))
	case gaveUp(w):
		warn(api.AlertWorkerGaveUp, "It stays down until an operator restarts it: %s", sentence(w.Reason))
	case w.State.Outcome() && !w.Entry.Resting:
		warn("out_of_service", "It has no process: %s", sentence(w.Reason))
	case w.State == lifecycle.Pending:
		warn("out_of_service", "It waits for its start: %s", sentence(w.Reason))
	case w.State == lifecycle.Degraded:
		warn("unhealthy", "It is degraded: %s", sentence(w.Reason))
	case w.State == lifecycle.Suspended:
		warn("out_of_service", "It is suspended: %s", sentence(w.Reason))
	case lasted >= stuck && (w.State == lifecycle.Starting || w.State == lifecycle.Draining ||
		w.State == lifecycle.Stopping):
		warn("out_of_service", "It has been %s for %s.", w.State, shown(lasted))
	}
	if w.Health == lifecycle.Unhealthy && w.State != lifecycle.Degraded {
		warn("unhealthy", "Its last health check failed.")
	}
	if willBeReplaced(w) {
		warn("bad_grade", "Its grade is %s. %s", w.Grade, strings.Join(w.Warnings, " "))
	}
	if last := lastRotation(w); last.Failed != "" {
		warn("start_failed", "Its replacement failed, so it stays in service: %s", sentence(last.Failed))
	}
	if w.ConsecutiveFailures > 1 {
		warn("worker_restarts", "It failed %d times in a row.", w.ConsecutiveFailures)
	}
	if failsCalls(w) {
		warn("calls_fail", "%.0f %% of its calls failed (%d of %d).", 100*float64(w.RequestsFailed)/float64(w.RequestsServed),
			w.RequestsFailed, w.RequestsServed)
	}
	return list
}

// gaveUp reports whether it stays down after a failure: no operator asked for that, nor its pool to free memory.
func gaveUp(w api.Worker) bool { return w.Entry.Resting && w.Entry.ReasonCode == api.ReasonGaveUp }

func failsCalls(w api.Worker) bool {
	return w.RequestsServed >= enoughCalls && float64(w.RequestsFailed) > muchFailed*float64(w.RequestsServed)
}

// willBeReplaced reports whether its grade will end the incarnation.
func willBeReplaced(w api.Worker) bool {
	return w.Grade == string(GradeCritical) || w.Grade == string(GradeFailing)
}

// lastRotation is the last replacement that was wanted of the present incarnation and not carried out; else it is
// empty.
func lastRotation(w api.Worker) api.RotationStatus {
	if last := w.LastRotation; last != nil && last.Incarnation == w.Incarnation {
		return *last
	}
	return api.RotationStatus{}
}

// recommendations are what to do, in that order. Each appears once, for all its workers.
func recommendations(p pool, measured []api.Worker) []string {
	var advice []string
	say := func(format string, values ...any) { advice = append(advice, fmt.Sprintf(format, values...)) }
	// about says something about those workers that fit, if there are any
	about := func(fits func(api.Worker) bool, text string) {
		var names []string
		for _, w := range p.Workers {
			if fits(w) {
				names = append(names, w.Worker)
			}
		}
		if len(names) > 0 {
			say("%s", strings.NewReplacer("{all}", listed(names), "{first}", names[0], "{one}", firstOf(names)).Replace(text))
		}
	}
	if p.Status.Stopping {
		return []string{"Nothing to do: the pool is stopping."}
	}
	if p.Rollout.Failed() {
		say("Fix the spec or the program and apply it again, or apply the previous spec: tempool pool apply -f pool.toml.")
	} else if p.Rollout != nil && p.Rollout.ByOperator {
		say("To restart the workers that wait, too: tempool workers restart %s; for another spec: tempool pool apply -f "+
			"pool.toml.", p.Pool)
	}
	about(gaveUp,
		"Find out what ended {all} (tempool history {first}), fix it, and restart: tempool workers restart {one}.")
	about(func(w api.Worker) bool { return w.Entry.Resting && !gaveUp(w) },
		"To start {all} again: tempool workers restart {one}.")
	about(func(w api.Worker) bool { return w.State == lifecycle.Suspended },
		"To let {all} serve again: tempool workers resume {one}.")
	about(func(w api.Worker) bool {
		return w.State == lifecycle.Pending && w.Entry.ReasonCode == api.ReasonNoCapacity
	},
		"Start an agent that can take {all}, raise --capacity of one, free what the reason says a host lacks (such as disk "+
			"space), or let one that drains have workers again (tempool hosts undrain HOST); tempool pool status "+p.Pool+
			" shows what is missing.")
	if p.Status.StartsPaused != "" {
		say("Fix what keeps the program from starting (tempool history shows its last output); starts are retried one " +
			"at a time.")
	}
	about(func(w api.Worker) bool {
		return !w.Entry.Resting && (total(w.RestartsByReason) >= manyRestarts || w.ConsecutiveFailures > 1)
	},
		"Find out why the processes of {all} end unexpectedly"+mostly(p.Workers)+": tempool history {first}.")
	about(failsCalls,
		"Investigate the failing calls of {all}: tempool logs {first} has the program's output, the callers have the errors.")
	if killed := killedProcesses(p.Workers); killed > 0 {
		say("Make the program end on SIGTERM, or raise pool.stop_grace: %s did not stop within it and had to be killed.",
			format.Plural(killed, "process"))
	}
	for _, w := range measured {
		if last := lastRotation(w); last.Observed && last.Reason != "" {
			say("Consider letting policies act (policy.mode = \"enforce\"): %s would have been replaced. %s", w.Worker,
				sentence(last.Reason))
			break
		}
	}
	for _, advised := range []string{memoryAdvice(p, measured), sizeAdvice(p, measured)} {
		if advised != "" {
			advice = append(advice, advised)
		}
	}
	if len(advice) == 0 {
		about(func(w api.Worker) bool { return w.State == lifecycle.Created || w.State == lifecycle.Starting },
			"Wait for the start of {all}: tempool history {first} shows how it goes, tempool logs {first} what the program "+
				"writes.")
	}
	if len(advice) == 0 {
		return []string{NothingToDo}
	}
	return advice
}

// memoryAdvice is about the worst memory problem: workers that are rotated for it repeatedly, that a limit or the
// health bands will replace soon, or that use far more than the others. Reasons and alerts name the key that decides.
func memoryAdvice(p pool, measured []api.Worker) string {
	var graded, near, unlike []string
	rotated, last := int64(0), ""
	sizes := make([]int64, 0, len(measured))
	for _, w := range measured {
		causes := []api.Cause{api.CauseMemory, api.CausePrediction, api.CauseGrade}
		for _, cause := range causes {
			rotated += w.RotationsByReason[string(cause)]
		}
		if w.LastRotation != nil && slices.Contains(causes, w.LastRotation.Cause) {
			last = fmt.Sprintf(" The last one of %s: %s", w.Worker, sentence(w.LastRotation.Reason))
		}
		if w.CurrentMemoryBytes > 0 {
			sizes = append(sizes, w.CurrentMemoryBytes)
		}
	}
	slices.Sort(sizes)
	for _, w := range measured {
		limit := cmp.Or(w.MaxMemoryBytes, max(0, int64(p.Status.Spec.Rotation.MaxMemory)))
		if willBeReplaced(w) {
			graded = append(graded, w.Worker)
		} else if limit > 0 && float64(w.CurrentMemoryBytes) >= nearMemoryLimit*float64(limit) {
			near = append(near, w.Worker)
		}
		if len(sizes) >= 3 && w.CurrentMemoryBytes >= noticeableMemory &&
			float64(w.CurrentMemoryBytes) >= unlikeSiblings*float64(sizes[len(sizes)/2]) {
			unlike = append(unlike, w.Worker)
		}
	}
	switch {
	case rotated >= manyRestarts:
		return fmt.Sprintf("Look for a leak in the program, or raise the limit that decides: workers were replaced %d times "+
			"for their memory or grade.%s", rotated, last)
	case len(graded) > 0:
		return fmt.Sprintf("Expect %s to be replaced soon for a bad grade; raise the bands that the alert names if the "+
			"program needs that much.", listed(graded))
	case len(near) > 0:
		return fmt.Sprintf("Expect %s to be replaced soon, at %s; raise it if the program needs that much.", listed(near),
			keyMaxMemory)
	case len(unlike) > 0:
		return fmt.Sprintf("Investigate %s: it uses more than twice the memory of the pool's other workers.", listed(unlike))
	}
	return ""
}

// sizeAdvice is whether the pool seems too small or too large. It is empty while workers are missing.
func sizeAdvice(p pool, measured []api.Worker) string {
	leased, idle := 0, 0
	if s := p.Status.Scale; s != nil {
		if s.Cause != string(ScaledToMax) {
			return ""
		}
		return fmt.Sprintf("Raise scale.max if calls wait too long (tempool pool scale %s MIN..MAX): %s.", p.Pool, s.Reason)
	}
	if len(measured) < p.Size || slices.ContainsFunc(measured, func(w api.Worker) bool { return !w.State.InService() }) {
		return ""
	}
	for _, w := range measured {
		if isLeased(w) {
			leased++
		}
		if w.RequestsServed == 0 && w.UptimeS >= longIdle.Seconds() {
			idle++
		}
	}
	refused, _ := p.refused()
	switch {
	case refused != "":
		return fmt.Sprintf("Scale up, if the hosts have capacity, or send fewer calls at the same time: tempool pool scale "+
			"%s %d.", p.Pool, p.Size+max(1, p.Size/2))
	case p.Size > 0 && leased == len(measured):
		all := "Its only worker is leased"
		if leased > 1 {
			all = fmt.Sprintf("All %d workers are leased", leased)
		}
		return fmt.Sprintf("If calls wait, scale up: tempool pool scale %s %d. %s.", p.Pool, p.Size+max(1, p.Size/2), all)
	case p.Size > 1 && idle == len(measured):
		return fmt.Sprintf("Consider scaling down: no worker has had a request for an hour or more (tempool pool scale "+
			"%s %d).",
			p.Pool, max(1, p.Size/2))
	}
	return ""
}

// mostly names the cause of more than half of the restarts, if there is one.
func mostly(workers []api.Worker) string {
	causes := map[string]int64{}
	for _, w := range workers {
		addTo(causes, w.RestartsByReason)
	}
	for cause, n := range causes {
		if 2*n > total(causes) {
			return " (most often: " + strings.ReplaceAll(cause, "_", " ") + ")"
		}
	}
	return ""
}

func total(by map[string]int64) int64 {
	var sum int64
	for _, n := range by {
		sum += n
	}
	return sum
}

// listed is "p/0", "p/0 and p/1", or "p/0, p/1 and 3 more".
func listed(names []string) string {
	const most = 3
	switch {
	case len(names) == 1:
		return names[0]
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most-1], ", "), len(names)-most+1)
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// firstOf is the first name, for a command line that takes one.
func firstOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return names[0] + ", and so on"
}

// sentence makes one sentence of a reason, of at most shownReason runes.
func sentence(reason string) string {
	text := format.OneLine(reason, shownReason)
	if text == "" {
		return "unknown reason."
	}
	if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "…") {
		text += "."
	}
	return text
}
