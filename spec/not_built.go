package spec

// gap is a promise of the file format that the code does not keep yet.
type gap struct {
	// missing says what does not happen.
	missing string
	// defaultHolds means that the default is what happens, so it may be written down; every other value is refused.
	defaultHolds bool
}

// notBuilt is the one list of such gaps, by section or key. Whoever builds a feature deletes its line, here and nowhere else, and
// the marks in docs/configuration.md that a test then asks for.
var notBuilt = map[string]gap{
	"lease.on_expiry": {missing: "a worker whose lease expired is always replaced", defaultHolds: true},
}

// gapAt returns the gap that a section, or a key "section.name", falls into.
func gapAt(section, key string) (gap, bool) {
	if g, found := notBuilt[section]; found {
		return g, true
	}
	g, found := notBuilt[key]
	return g, found
}

// refusal is the error for a section or key that was set in vain.
func (g gap) refusal(key string, isSection bool) *Error {
	what := "key"
	if isSection {
		what = "section"
	}
	return &Error{Key: key, Problem: "not built yet: " + g.missing + "; remove the " + what}
}

// firstGap finds the first value that asks for something that is not built. Where the question is about presence in a file, Parse
// has asked it already.
func firstGap(s *Spec) *Error {
	defaults := Default()
	for _, k := range keys {
		if g, found := gapAt(k.section, k.key()); found && !sameValue(k.value(s), k.value(&defaults)) {
			return g.refusal(k.key(), false)
		}
	}
	return nil
}
