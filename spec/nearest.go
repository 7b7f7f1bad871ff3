package spec

import (
	"slices"
	"strings"
)

// nearestSection returns the section with the most similar name, in brackets; for a key outside its section, the key
// with its section.
func nearestSection(name string) string {
	if owners := keysNamed(name); len(owners) > 0 {
		return orList(owners)
	}
	return "[" + closest(name, sections) + "]"
}

// nearestKey returns the known key that an unknown key in a section most likely stands for: those of other sections
// with the same name, unless the section has one with a very similar name, else the section's most similar one.
func nearestKey(section, name string) (nearest string, inOther bool) {
	own := closest(name, namesIn(section))
	if owners := keysNamed(name); len(owners) > 0 && distance(name, own) > max(1, len(name)/4) {
		return orList(owners), true
	}
	return section + "." + own, false
}

// keysNamed returns the keys of that name in all sections.
func keysNamed(name string) []string {
	var owners []string
	for _, k := range keys {
		if k.name == name {
			owners = append(owners, k.key())
		}
	}
	return owners
}

// closest returns the first word with the least distance.
func closest(name string, words []string) string {
	return slices.MinFunc(words, func(a, b string) int { return distance(name, a) - distance(name, b) })
}

// maxComparedBytes bounds the work for hostile names; every known key is shorter than half of it.
const maxComparedBytes = 64

// distance returns the Levenshtein distance of two names in bytes. It ignores case.
func distance(a, b string) int {
	a, b = strings.ToLower(a[:min(len(a), maxComparedBytes)]), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			step := diagonal
			if a[i] != b[j] {
				step = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], step
		}
	}
	return row[len(b)]
}
