package policy

import "github.com/tempool/tempool/api"

// runbookPage is the page whose sections say what a problem means, what to look at and what to do.
const runbookPage = "https://github.com/tempool/tempool/blob/main/docs/operations/alerts.md"

// runbooks are its sections by kind of problem. Each alert of Prometheus has a section of its own name.
var runbooks = map[string]string{
	// alerts of a report
	"pool_down":            "tempoolpooldown",
	"out_of_service":       "tempoolpoolshort",
	"unhealthy":            "tempoolworkerunhealthy",
	"bad_grade":            "bad-grade",
	"start_failed":         "tempoolstartsfail",
	"worker_restarts":      "tempoolworkerrestarts",
	"calls_fail":           "tempoolcallsfail",
	"calls_refused":        "tempoolcallsrefused",
	"no_answer":            "no-answer",
	api.AlertStartsHeld:    "tempoolstartsheld",
	api.AlertRolloutHalted: "tempoolrollouthalted",
	api.AlertWorkerGaveUp:  "tempoolworkerresting",
	// checks of tempool doctor
	"temporal":          "tempoolcontrolplanelost",
	"namespace":         "namespace",
	"search_attributes": "namespace",
	"agents":            "tempoolagentdown",
	"versions":          "versions",
	"clock":             "clock",
	"cgroups":           "limits",
	"pss":               "limits",
	"open_files":        "limits",
	"disk":              "disk",
	"gateway":           "gateway",
	"access":            "gateway",
	"certificate":       "gateway",
	"pools":             "no-answer",
	"placement":         "tempoolpooldown",
	"root":              "root",
}

// Runbook is the address of the section about a kind of problem: an alert of a report or of api.AlertEvent, or a check
// of tempool doctor.
func Runbook(kind string) string { return runbookPage + "#" + runbooks[kind] }
