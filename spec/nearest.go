package spec

import (
	"slices"
	"strings"
)

// nearestSection is the section whose name is closest, as it is written in the file. A key that stands where a section should
// is told its section.
func nearestSection(name string) string {
	if owners := keysNamed(name); len(owners) > 0 {
		return orList(owners)
	}
	return "[" + closest(name, sections) + "]"
}

// nearestKey is the known key that an unknown one in a known section was most likely meant to be: one of its section with nearly
// that name, else the same name in another section, else whatever comes closest.
func nearestKey(section, name string) string {
	var own, others []string
	for _, k := range keys {
		if k.section == section {
			own = append(own, k.name)
		} else {
			others = append(others, k.name)
		}
	}
	inOwn := closest(name, own)
	if distance(name, inOwn) <= max(1, len(name)/4) {
		return section + "." + inOwn
	}
	if owners := keysNamed(name); len(owners) > 0 {
		return orList(owners)
	}
	if elsewhere := closest(name, others); distance(name, elsewhere) < distance(name, inOwn) {
		return orList(keysNamed(elsewhere))
	}
	return section + "." + inOwn
}

// keysNamed lists the known keys of that name, in every section.
func keysNamed(name string) []string {
	var owners []string
	for _, k := range keys {
		if k.name == name {
			owners = append(owners, k.key())
		}
	}
	return owners
}

// closest is the first of the words with the least distance.
func closest(name string, words []string) string {
	return slices.MinFunc(words, func(a, b string) int { return distance(name, a) - distance(name, b) })
}

// maxComparedBytes bounds the work on hostile names; no known key is half as long.
const maxComparedBytes = 64

// distance is Levenshtein's: how many bytes must be inserted, dropped or replaced to make b of a. Letter case is no difference.
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
