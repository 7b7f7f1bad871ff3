package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tempool/tempool/lifecycle"
)

// The thresholds of alerts and recommendations.
const (
	muchFailed       = 0.05            // share of calls
	enoughCalls      = 20              // before a share of them says anything
	manyRestarts     = 3               // unplanned ones of a worker, in all its life
	nearMemoryLimit  = 0.8             // share of rotation.max_memory
	unlikeSiblings   = 2.0             // times the median memory
	noticeableMemory = 64 << 20        // bytes, below which nobody cares
	stuck            = 2 * time.Minute // in a state that should pass
	longIdle         = time.Hour       // of life without a request
	shownReason      = 160             // runes of a reason in a sentence
)

// alerts lists what is wrong, the worst first.
func alerts(p PoolFacts) []Alert {
	list := []Alert{}
	ready := 0
	for _, w := range p.Workers {
		if w.serving() {
			ready++
		}
	}
	if ready == 0 && p.Size > 0 && !p.Stopping {
		list = append(list, Alert{SeverityCritical, "", "No worker of the pool is in service."})
	}
	if p.Held != "" {
		list = append(list, Alert{SeverityCritical, "", sentence(p.Held)})
	}
	if p.Halted != "" {
		list = append(list, Alert{SeverityWarning, "", "The rolling restart has halted: " + sentence(p.Halted)})
	}
	for _, w := range p.Workers {
		list = append(list, w.alerts(p)...)
	}
	slices.SortStableFunc(list, func(a, b Alert) int { return rankOf(a.Severity) - rankOf(b.Severity) })
	return list
}

func rankOf(s Severity) int {
	if s == SeverityCritical {
		return 0
	}
	return 1
}

func (w WorkerFacts) alerts(p PoolFacts) []Alert {
	var list []Alert
	warn := func(format string, values ...any) {
		list = append(list, Alert{SeverityWarning, w.Worker, fmt.Sprintf(format, values...)})
	}
	lasted := time.Duration(0)
	if !w.Since.IsZero() {
		lasted = p.At.Sub(w.Since)
	}
	switch {
	case w.Unasked != "":
		warn("It could not be asked how it is: %s", sentence(w.Unasked))
	case w.Resting:
		warn("It stays down until somebody restarts it: %s", sentence(w.Reason))
	case w.State.Outcome():
		warn("It has no process: %s", sentence(w.Reason))
	case w.State == lifecycle.Pending:
		warn("It waits to be started: %s", sentence(w.Reason))
	case w.State == lifecycle.Degraded:
		warn("It is degraded: %s", sentence(w.Reason))
	case w.State == lifecycle.Suspended:
		warn("It is suspended: %s", sentence(w.Reason))
	case lasted >= stuck && (w.State == lifecycle.Starting || w.State == lifecycle.Draining || w.State == lifecycle.Stopping):
		warn("It has been %s for %s.", w.State, shown(lasted))
	}
	if w.Health == lifecycle.Unhealthy && w.State != lifecycle.Degraded {
		warn("Its last health check failed.")
	}
	if w.Grade == GradeCritical || w.Grade == GradeFailing {
		warn("Its grade is %s. %s", w.Grade, strings.Join(w.Warnings, " "))
	}
	if w.Unreplaced != "" {
		warn("It was to be replaced and serves on, since the next process could not be started: %s", sentence(w.Unreplaced))
	}
	if w.ConsecutiveFailures > 1 {
		warn("It has failed %d times in a row.", w.ConsecutiveFailures)
	}
	if w.Requests >= enoughCalls && float64(w.Failed) > muchFailed*float64(w.Requests) {
		warn("%.0f %% of its calls have failed (%d of %d).", 100*float64(w.Failed)/float64(w.Requests), w.Failed, w.Requests)
	}
	return list
}

// recommendations say what to do, in the order in which to do it. Each stands once, however many workers it is about.
func recommendations(p PoolFacts, measured []WorkerFacts) []string {
	var advice []string
	say := func(format string, values ...any) { advice = append(advice, fmt.Sprintf(format, values...)) }
	which := func(fits func(WorkerFacts) bool) []string {
		var names []string
		for _, w := range p.Workers {
			if fits(w) {
				names = append(names, w.Worker)
			}
		}
		return names
	}
	if p.Stopping {
		return []string{"Nothing to do: the pool is about to end."}
	}
	if p.Halted != "" {
		say("Mend the spec or the program and apply it again, or apply the one before: ctl pool apply -f pool.toml.")
	}
	if names := which(func(w WorkerFacts) bool { return w.Resting }); len(names) > 0 {
		say("Find out what ended %s (ctl history %s), mend it, and revive: ctl workers restart %s%s.", listed(names), names[0], p.Pool, slotFlag(names))
	}
	if names := which(func(w WorkerFacts) bool { return w.State == lifecycle.Suspended }); len(names) > 0 {
		say("If %s may serve again: ctl workers resume %s%s.", listed(names), p.Pool, slotFlag(names))
	}
	if names := which(func(w WorkerFacts) bool {
		return w.State == lifecycle.Pending && strings.Contains(w.Reason, "--capacity")
	}); len(names) > 0 {
		say("Start an agent with the pool's placement label on another host, or raise --capacity of one: no host has room for %s.", listed(names))
	}
	if p.Held != "" {
		say("Mend what keeps the program from starting (ctl history says what it wrote last); one start after the other tries again by itself.")
	}
	if names := which(func(w WorkerFacts) bool { return !w.Resting && total(w.Restarts) >= manyRestarts }); len(names) > 0 {
		say("Look why the processes of %s end unasked%s: ctl history %s.", listed(names), mostly(p.Workers), names[0])
	}
	if names := which(func(w WorkerFacts) bool {
		return w.Requests >= enoughCalls && float64(w.Failed) > muchFailed*float64(w.Requests)
	}); len(names) > 0 {
		say("Look into the failing calls of %s: the agent's log has what the program wrote, the callers have the errors.", listed(names))
	}
	for _, w := range measured {
		if w.Observed != "" {
			say("Decide whether to let policies act (policy.mode = \"enforce\"): %s would have been replaced. %s", w.Worker, sentence(w.Observed))
			break
		}
	}
	if advised := memoryAdvice(p, measured); advised != "" {
		advice = append(advice, advised)
	}
	if advised := sizeAdvice(p, measured); advised != "" {
		advice = append(advice, advised)
	}
	if len(advice) == 0 {
		return []string{"Nothing to do."}
	}
	return advice
}

// memoryAdvice speaks of the worst that memory shows: workers that are rotated for it again and again, that are near the limit, or that
// use far more than their siblings.
func memoryAdvice(p PoolFacts, measured []WorkerFacts) string {
	var near, unlike []string
	rotated := int64(0)
	sizes := make([]int64, 0, len(measured))
	for _, w := range measured {
		rotated += w.Rotations["memory"] + w.Rotations["prediction"]
		if w.MemoryBytes > 0 {
			sizes = append(sizes, w.MemoryBytes)
		}
	}
	slices.Sort(sizes)
	for _, w := range measured {
		if p.MaxMemoryBytes > 0 && float64(w.MemoryBytes) >= nearMemoryLimit*float64(p.MaxMemoryBytes) {
			near = append(near, w.Worker)
		}
		if len(sizes) >= 3 && w.MemoryBytes >= noticeableMemory && float64(w.MemoryBytes) >= unlikeSiblings*float64(sizes[len(sizes)/2]) {
			unlike = append(unlike, w.Worker)
		}
	}
	switch {
	case rotated >= manyRestarts:
		return fmt.Sprintf("Look for a leak in the program, or raise rotation.max_memory (%s): workers were replaced %d times for their memory.", memoryLimit(p), rotated)
	case len(near) > 0:
		return fmt.Sprintf("Expect %s to be replaced soon, at rotation.max_memory (%s); raise it if the program needs that much.", listed(near), memoryLimit(p))
	case len(unlike) > 0:
		return fmt.Sprintf("See what %s did: it uses more than twice the memory of its siblings.", listed(unlike))
	}
	return ""
}

func memoryLimit(p PoolFacts) string {
	if p.MaxMemoryBytes <= 0 {
		return "none"
	}
	return megabytes(p.MaxMemoryBytes)
}

// sizeAdvice says whether the pool seems too small or too large. One of which workers are missing has another trouble first.
func sizeAdvice(p PoolFacts, measured []WorkerFacts) string {
	leased, idle := 0, 0
	if len(measured) < p.Size || slices.ContainsFunc(measured, func(w WorkerFacts) bool { return !w.serving() }) {
		return ""
	}
	for _, w := range measured {
		if w.State == lifecycle.Busy || w.Holder != "" {
			leased++
		}
		if w.Requests == 0 && w.Uptime >= longIdle {
			idle++
		}
	}
	switch {
	case p.Size > 0 && leased == len(measured):
		return fmt.Sprintf("If callers wait, give the pool more workers: ctl pool scale %s %d. All %d are leased.", p.Pool, p.Size+max(1, p.Size/2), leased)
	case p.Size > 1 && idle == len(measured):
		return fmt.Sprintf("Make the pool smaller if that is no accident: none of its workers has had a request for an hour or more (ctl pool scale %s %d).", p.Pool, max(1, p.Size/2))
	}
	return ""
}

// mostly names the cause of most unplanned restarts, if one stands out.
func mostly(workers []WorkerFacts) string {
	causes := map[string]int64{}
	for _, w := range workers {
		for cause, n := range w.Restarts {
			causes[cause] += n
		}
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

// slotFlag names the one worker that ctl is to act on; of several, the first.
func slotFlag(names []string) string {
	_, slot, _ := strings.Cut(names[0], "/")
	if len(names) == 1 {
		return " --worker " + slot
	}
	return " --worker " + slot + ", and so on"
}

// sentence is a reason as one sentence of a bounded length.
func sentence(reason string) string {
	text := strings.Join(strings.Fields(reason), " ")
	if text == "" {
		return "no reason is known."
	}
	if runes := []rune(text); len(runes) > shownReason {
		return strings.TrimRight(string(runes[:shownReason-1]), " ") + "…"
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}
