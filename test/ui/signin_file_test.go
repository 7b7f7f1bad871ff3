package ui_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// TestCtlSignsABrowserInByAFile opens what tempool ui gives to the program that opens a browser.
func TestCtlSignsABrowserInByAFile(t *testing.T) {
	f := newFleet(t)
	endpoint := f.startAgent("near")
	build := exec.Command("go", "build", "-o", filepath.Join(f.dir, "tempool"), "./cmd/tempool")
	build.Dir = filepath.Join("..", "..")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	opened := filepath.Join(f.dir, "opened")
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "xdg-open"),
		[]byte("#!/bin/sh\nprintf %s \"$*\" > "+opened+".new && mv "+opened+".new "+opened+"\n"), 0o700))
	command := exec.Command(filepath.Join(f.dir, "tempool"), "ui", "--address", f.server.Address(), "--namespace",
		f.server.Namespace(),
		"--gateway", "unix:"+filepath.Join(f.dir, "near", "gateway.sock"))
	command.Env = append(os.Environ(), "PATH="+f.dir+":"+os.Getenv("PATH"), "DISPLAY=:0", "XDG_CACHE_HOME="+
		filepath.Join(f.dir, "cache"))
	output, err = command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "opened the dashboard in a browser, as ")
	var page []byte
	require.Eventually(t, func() bool { // tempool does not wait long for the program
		page, err = os.ReadFile(opened)
		return err == nil
	}, timeout, 10*time.Millisecond)
	address, err := url.Parse(string(page))
	require.NoError(t, err)
	require.Equal(t, "file", address.Scheme, "the argument of the program has no secret: %s", page)

	b := newBrowser(t)
	b.run(chromedp.Navigate(string(page)))
	b.await("the fleet, seen by an operator", `location.href === "`+endpoint+
		`/ui/" && document.body.innerText.includes("Sign out")`)
	b.sound()
	require.NotContains(t, evaluate[string](b, `document.body.innerText`), "read-only")

	b.run(chromedp.Navigate(string(page)))
	b.await("the refusal of a link that was used", `document.body.innerText.includes("was used before")`)
	b.open(endpoint + "/ui/")
	require.Contains(t, evaluate[string](b, `document.body.innerText`), "Sign out", "who has signed in stays so")
	b.forgive() // Chromium reports the refusal
}
