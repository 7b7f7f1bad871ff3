package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/internal/sleep"
)

// Variables with the defaults of Deployment.
const (
	deploymentVariable = "TEMPOOL_DEPLOYMENT"
	buildIDVariable    = "TEMPOOL_BUILD_ID"
)

// Deployment makes the workflow code of an agent a version of a Worker Deployment, so that Temporal sends workflow
// tasks to agents of the deployment's current version only. The zero value does not take part in versioning.
//
// Only workflows are versioned. Activities belong to a host, a pool or a place, and each goes to whichever agent serves
// that.
type Deployment struct {
	Name    string // of the Worker Deployment. Default: TEMPOOL_DEPLOYMENT
	BuildID string // of this agent's code. Default: TEMPOOL_BUILD_ID
}

var (
	deploymentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)
	buildID        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$`)
)

func (d *Deployment) complete() error {
	d.Name, d.BuildID = cmp.Or(d.Name, os.Getenv(deploymentVariable)), cmp.Or(d.BuildID, os.Getenv(buildIDVariable))
	switch {
	case d.Name == "" && d.BuildID == "":
		return nil
	case d.Name == "" || d.BuildID == "":
		return errors.New("--deployment and --build-id belong together; set both, or none for an agent without versioning")
	case !deploymentName.MatchString(d.Name):
		return fmt.Errorf("invalid --deployment %q; allowed: 1 to 100 letters, digits, '_' and '-', the first a letter or "+
			"digit, for example tempool", d.Name)
	case !buildID.MatchString(d.BuildID):
		return fmt.Errorf("invalid --build-id %q; allowed: 1 to 100 letters, digits, '.', '_', '+' and '-', the first a "+
			"letter or digit, for example 1.4.0", d.BuildID)
	}
	return nil
}

func (d Deployment) versioned() bool { return d.Name != "" }

// options are those of the worker that runs workflows.
//
// Workflows move to the current version with their next workflow task (AutoUpgrade). Pinned ones would stay with the
// build that started the run, and stall on hosts where the upgrade replaces the only agent of that build.
func (d Deployment) options() sdkworker.DeploymentOptions {
	if !d.versioned() {
		return sdkworker.DeploymentOptions{}
	}
	return sdkworker.DeploymentOptions{
		UseVersioning:             true,
		Version:                   sdkworker.WorkerDeploymentVersion{DeploymentName: d.Name, BuildID: d.BuildID},
		DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
	}
}

const (
	// registerTimeout is how long Temporal may take to know the version of an agent that polls.
	registerTimeout = 30 * time.Second
	// registerInterval is the time between two questions about it.
	registerInterval = 250 * time.Millisecond
)

// register waits until Temporal knows this agent's version, and makes the first version of a deployment the current
// one: without a current version nothing would run the deployment's workflows. Later versions become current by the
// operator's command, which register logs.
func (d Deployment) register(ctx context.Context, deployments client.WorkerDeploymentClient, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	handle := deployments.GetHandle(d.Name)
	for {
		current, err := d.ensureCurrent(ctx, handle)
		switch {
		case err == nil && current == d.BuildID:
			log.Info("this agent's build is the current version of its deployment", "deployment", d.Name, "build_id", d.BuildID)
			return nil
		case err == nil:
			log.Warn(fmt.Sprintf("another build is the current version of the deployment; once this build's agents run, make "+
				"it current: temporal worker deployment set-current-version --deployment-name %s --build-id %s", d.Name, d.BuildID),
				"deployment", d.Name, "build_id", d.BuildID, "current", current)
			return nil
		case !isRegistering(err):
			return fmt.Errorf("register build %s of deployment %s: %w", d.BuildID, d.Name, err)
		}
		if !sleep.For(ctx.Done(), registerInterval) {
			return fmt.Errorf("register build %s of deployment %s: Temporal does not know it after %s; check that the server "+
				"supports Worker Deployment Versioning "+
				"(release 1.28 or newer): %w", d.BuildID, d.Name, registerTimeout, err)
		}
	}
}

// ensureCurrent returns the build ID of the deployment's current version. If there is none, it makes this one current.
func (d Deployment) ensureCurrent(ctx context.Context, handle client.WorkerDeploymentHandle) (string, error) {
	answer, err := handle.Describe(ctx, client.WorkerDeploymentDescribeOptions{})
	if err != nil {
		return "", err
	}
	if current := answer.Info.RoutingConfig.CurrentVersion; current != nil {
		return current.BuildID, nil
	}
	_, err = handle.SetCurrentVersion(ctx,
		client.WorkerDeploymentSetCurrentVersionOptions{BuildID: d.BuildID, ConflictToken: answer.ConflictToken})
	return d.BuildID, err
}

// isRegistering reports whether an error says that the version is not known yet, or that another agent has changed the
// deployment meanwhile.
func isRegistering(err error) bool {
	var notFound *serviceerror.NotFound
	var precondition *serviceerror.FailedPrecondition
	var unavailable *serviceerror.Unavailable
	return errors.As(err, &notFound) || errors.As(err, &precondition) || errors.As(err, &unavailable)
}
