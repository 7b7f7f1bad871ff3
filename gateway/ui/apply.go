package ui

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/gateway/access"
	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/spec"
)

// The steps of applying a spec: it is edited, compared with the present one, and applied.
const (
	stepEdit    = "edit"
	stepCompare = "compare"
	stepApply   = "apply"
)

// pastedFile is how errors name the text of a form.
const pastedFile = "pool.toml"

func applyPath(pool string) string { return poolPath(pool) + "/apply" }

// applyView is what the page shows on which a spec is edited and compared.
type applyView struct {
	Pool    string
	Version int64 // of the present spec
	Text    string
	Error   string
	Line    int // of the error; 0 is none
	// Compared says that Changes are what the text changes, and Base names the spec that it was compared with.
	Compared bool
	Changes  []spec.Change
	Base     string
	Notes    []string
	Means    string
	Reason   string // for the history
}

// mayApply reports whether a client may apply specs: they name programs, which run on the hosts as the agent's user, out of the bounds of any pool.
func mayApply(p *access.Principal) bool { return p.Has(access.Admin) && p.EveryPool() }

func (v *visit) checkMayApply() error {
	if !mayApply(v.principal) {
		return api.Errorf(api.CodeForbidden, "%s may use only some pools, and a spec can make a host run any program; sign in as an operator: run ctl ui as the agent's user, or use a token for every pool", v.principal.Name)
	}
	return nil
}

// applyPage shows the present spec as text to edit.
func (v *visit) applyPage() error {
	if err := v.checkMayApply(); err != nil {
		return err
	}
	present, err := v.presentSpec()
	if err != nil {
		return err
	}
	return v.showApply(http.StatusOK, applyView{Version: present.SpecVersion, Text: present.Spec.Text()})
}

// postApply compares the text of the form with the present spec, or applies it. A page with an error still has the text.
func (v *visit) postApply() error {
	if err := v.checkMayApply(); err != nil {
		return err
	}
	present, err := v.presentSpec()
	view := applyView{ // a form has CRLF
		Version: present.SpecVersion, Text: strings.ReplaceAll(v.r.PostFormValue("spec"), "\r\n", "\n"), Reason: strings.TrimSpace(v.r.PostFormValue("reason")),
	}
	if err != nil {
		view.Error = "The present spec cannot be read: " + message(err) + ". Nothing was applied; compare again in a moment."
		return v.showApply(statusOf(err), view)
	}
	step := v.r.PostFormValue("step")
	if step == stepEdit {
		return v.showApply(http.StatusOK, view)
	}
	wanted, notes, invalid := parsePasted(view.Text, present)
	if invalid != nil {
		view.Error, view.Line = invalid.Error(), invalid.Line
		return v.showApply(http.StatusBadRequest, view)
	}
	view.Notes = notes
	view.compare(present, wanted)
	if step != stepApply || len(view.Changes) == 0 {
		return v.showApply(http.StatusOK, view)
	}
	if err := checkReason(view.Reason); err != nil {
		view.Error = "Nothing was applied: " + message(err) + "."
		return v.showApply(http.StatusBadRequest, view)
	}
	if v.r.PostFormValue("base") != view.Base {
		return v.showNewBase(view)
	}
	ctx, cancel := context.WithTimeout(v.ctx(), actTimeout)
	defer cancel()
	request := api.ApplyRequest{Spec: wanted, IfVersion: present.SpecVersion, Reason: view.Reason, By: v.author()}
	if err := v.d.config.Fleet.Apply(ctx, present.Pool, request); errors.Is(err, api.ErrVersionConflict) {
		if present, err = v.presentSpec(); err == nil {
			view.compare(present, wanted)
			return v.showNewBase(view)
		}
		view.Error = "Nothing was applied: the pool's spec has changed since you compared. The present one cannot be read: " + message(err) + "."
		return v.showApply(statusOf(err), view)
	} else if err != nil {
		view.Error = "This was not applied: " + message(err) + "."
		return v.showApply(statusOf(err), view)
	}
	v.d.config.Logger.Info("dashboard action completed", "action", "apply", "target", "pool "+present.Pool, "by", v.principal.Name, "changes", len(view.Changes))
	v.d.memos.forget(present.Pool) // so that it is queried again
	http.Redirect(v.w, v.r, poolPath(present.Pool)+"?done=apply", http.StatusSeeOther)
	return nil
}

// showNewBase shows the difference from a spec that somebody else has applied since the user compared.
func (v *visit) showNewBase(view applyView) error {
	view.Error = "Nothing was applied: the pool's spec has changed since you compared. This is the difference now."
	return v.showApply(http.StatusConflict, view)
}

// presentSpec is the status of a running pool as it is now.
func (v *visit) presentSpec() (api.PoolStatus, error) {
	ctx, cancel := context.WithTimeout(v.ctx(), v.requestTimeout())
	defer cancel()
	name := v.r.PathValue("pool")
	status, err := v.d.config.Fleet.Status(ctx, name)
	if err == nil && status.Ended {
		err = api.Errorf(api.CodePoolNotFound, "pool %s has stopped; ctl pool start starts it again", name)
	}
	return status, err
}

func (v *visit) showApply(status int, view applyView) error {
	view.Pool = v.r.PathValue("pool")
	return v.render(status, "apply", page{Title: "Apply a spec to " + view.Pool, Nav: "fleet", Data: view})
}

// parsePasted reads the text of a form. A text has no folder, so without a pool.dir it keeps the present one, which a note says, and a relative
// one is an error.
func parsePasted(text string, present api.PoolStatus) (s spec.Spec, notes []string, invalid *spec.Error) {
	s, err := spec.Parse([]byte(text), pastedFile)
	if invalid, ok := errors.AsType[*spec.Error](err); ok {
		return s, nil, invalid
	}
	if err != nil {
		return s, nil, &spec.Error{File: pastedFile, Problem: err.Error()}
	}
	if s.Pool.Name != present.Pool {
		return s, nil, &spec.Error{
			File: pastedFile, Line: spec.LineOf(text, "pool.name"), Key: "pool.name", Problem: "the spec is for another pool, " + s.Pool.Name, Allowed: `"` + present.Pool + `", for a pool cannot be renamed`,
		}
	}
	switch dir := s.Pool.Dir; {
	case s.Pool.Kind != spec.KindProcess || filepath.IsAbs(dir):
	case dir == "":
		if s.Pool.Dir = present.Spec.Pool.Dir; s.Pool.Dir != "" {
			notes = append(notes, "The text has no pool.dir, and a text in a browser has no folder: it stays "+s.Pool.Dir+".")
		}
	default:
		return s, nil, &spec.Error{
			File: pastedFile, Line: spec.LineOf(text, "pool.dir"), Key: "pool.dir", Problem: `"` + dir + `" is relative, and a text in a browser has no folder`, Allowed: "an absolute path, or no pool.dir, which keeps the present one",
		}
	}
	return s, notes, nil
}

// compare fills in what a change to the spec wanted means.
func (a *applyView) compare(present api.PoolStatus, wanted spec.Spec) {
	a.Compared, a.Changes, a.Base = true, spec.Changes(present.Spec, wanted), fingerprint(present.Spec)
	restarts := false
	for _, c := range a.Changes {
		restarts = restarts || !ofPoolAlone(c.Key)
	}
	switch {
	case len(a.Changes) == 0:
		a.Means = "The text is the spec that the pool has. There is nothing to apply."
	case !restarts:
		a.Means = "No worker restarts: only the size of the pool changes, or the demand that it follows."
	default:
		a.Means = format.Plural(len(present.Workers), "worker") + " to restart, at most " + strconv.Itoa(wanted.Rotation.MaxUnavailable) +
			" at a time. Each finishes its calls first. The rollout halts if one does not get ready again, and the others then keep the spec that they have."
	}
	if r := present.Rollout; r != nil && restarts && r.Halted == "" {
		a.Notes = append(a.Notes, "A rolling restart is under way ("+rolloutText(r)+"); this one replaces it.")
	}
}

// ofPoolAlone reports whether a key is about the pool and not about its workers, none of which restarts for it.
func ofPoolAlone(key string) bool { return key == "pool.size" || strings.HasPrefix(key, "scale.") }

// fingerprint names a spec, so that nobody applies a change to another one than was shown.
func fingerprint(s spec.Spec) string {
	encoded, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:8])
}
