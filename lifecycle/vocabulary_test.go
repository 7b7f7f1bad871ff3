package lifecycle_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/lifecycle"
)

// everyEvent holds each event once, and an exit of every kind.
func everyEvent() []lifecycle.Event {
	var events []lifecycle.Event
	for _, k := range lifecycle.EventKinds() {
		if k != lifecycle.Exited {
			events = append(events, event(k))
		}
	}
	for _, x := range []lifecycle.Exit{{}, {Killed: true}, {Interrupted: true}, {Code: 1}, {Signal: "SIGSEGV"}, {Error: "host lost"}} {
		events = append(events, lifecycle.Event{Kind: lifecycle.Exited, Exit: &x})
	}
	return events
}

// afters are the machines that one event leads to.
func afters(m lifecycle.Machine) []lifecycle.Machine {
	var list []lifecycle.Machine
	for _, e := range everyEvent() {
		if after, err := lifecycle.Next(m, e, m.Since); err == nil {
			list = append(list, after)
		}
	}
	return list
}

// situation is what the machine's next steps depend on.
type situation struct {
	state lifecycle.State
	stop  bool
}

// reach walks from the given machines through every one that enter lets in, and returns those.
func reach(from []lifecycle.Machine, enter func(lifecycle.State) bool) []lifecycle.Machine {
	seen := map[situation]bool{}
	var reached []lifecycle.Machine
	for queue := from; len(queue) > 0; queue = queue[1:] {
		for _, m := range afters(queue[0]) {
			if s := (situation{m.State, m.StopRequested}); !seen[s] && enter(m.State) {
				seen[s] = true
				reached, queue = append(reached, m), append(queue, m)
			}
		}
	}
	return reached
}

// alive are all situations that a worker can get into.
func alive() []lifecycle.Machine {
	first := lifecycle.New(epoch)
	return append(reach([]lifecycle.Machine{first}, func(lifecycle.State) bool { return true }), first)
}

func TestEveryStateCanBeReached(t *testing.T) {
	reached := map[lifecycle.State]bool{}
	for _, m := range alive() {
		reached[m.State] = true
	}
	require.Len(t, reached, len(lifecycle.States()))
}

func TestEveryTransitionOfTheThreeMachinesCanBeWalkedHere(t *testing.T) {
	for _, v := range lifecycle.Vocabularies() {
		for _, move := range v.Transitions {
			t.Run(fmt.Sprintf("%s/%s to %s", v.Name, move.From, move.To), func(t *testing.T) {
				starts := slices.DeleteFunc(alive(), func(m lifecycle.Machine) bool { return v.Words[m.State] != move.From })
				require.NotEmpty(t, starts)
				reached := reach(starts, func(s lifecycle.State) bool {
					word, ok := v.Words[s]
					return !ok || word == move.From || word == move.To
				})
				require.True(t, slices.ContainsFunc(reached, func(m lifecycle.Machine) bool { return v.Words[m.State] == move.To }))
			})
		}
	}
}

func TestEveryStepThatAVocabularyDoesNotKnowStandsInItsListOnce(t *testing.T) {
	for _, v := range lifecycle.Vocabularies() {
		used := make([]bool, len(v.Beyond))
		for _, m := range alive() {
			for _, after := range afters(m) {
				var covers []int
				for i, b := range v.Beyond {
					if b.Covers(m.State, after.State) {
						covers = append(covers, i)
						used[i] = true
					}
				}
				if v.Knows(m.State, after.State) {
					require.Empty(t, covers, "%s knows %s → %s, yet lists it as new", v.Name, m.State, after.State)
				} else {
					require.Len(t, covers, 1, "%s: %s → %s", v.Name, m.State, after.State)
				}
			}
		}
		for i, b := range v.Beyond {
			require.True(t, used[i], "%s lists steps that nobody can take: %v", v.Name, b)
			require.NotEmpty(t, b.Reason)
		}
		require.LessOrEqual(t, len(v.Beyond), 10, "the list is to stay short")
	}
}
