package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cuelight/cuelight/internal/pgtest"
)

const kubernetesDir = "../../docs/deploy/kubernetes"

// The types of KEDA 2, as far as the manifests use them. Its own module needs 600 packages.
type (
	kedaTrigger struct {
		Type              string            `json:"type"`
		Metadata          map[string]string `json:"metadata"`
		AuthenticationRef *struct {
			Name string `json:"name"`
		} `json:"authenticationRef"`
	}
	scaledObject struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			ScaleTargetRef struct {
				Name string `json:"name"`
			} `json:"scaleTargetRef"`
			MinReplicaCount *int32        `json:"minReplicaCount"`
			MaxReplicaCount *int32        `json:"maxReplicaCount"`
			CooldownPeriod  *int32        `json:"cooldownPeriod"`
			Triggers        []kedaTrigger `json:"triggers"`
		} `json:"spec"`
	}
	scaledJob struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			JobTargetRef               batchv1.JobSpec `json:"jobTargetRef"`
			PollingInterval            *int32          `json:"pollingInterval"`
			MaxReplicaCount            *int32          `json:"maxReplicaCount"`
			SuccessfulJobsHistoryLimit *int32          `json:"successfulJobsHistoryLimit"`
			FailedJobsHistoryLimit     *int32          `json:"failedJobsHistoryLimit"`
			Rollout                    struct {
				Strategy string `json:"strategy"`
			} `json:"rollout"`
			ScalingStrategy struct {
				Strategy string `json:"strategy"`
			} `json:"scalingStrategy"`
			Triggers []kedaTrigger `json:"triggers"`
		} `json:"spec"`
	}
	triggerAuthentication struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			SecretTargetRef []struct {
				Parameter string `json:"parameter"`
				Name      string `json:"name"`
				Key       string `json:"key"`
			} `json:"secretTargetRef"`
		} `json:"spec"`
	}
)

// manifests are the documents of docs/deploy/kubernetes.
type manifests struct {
	deployment     appsv1.Deployment
	object         scaledObject
	job            scaledJob
	authentication triggerAuthentication
}

// readManifests decodes each document strictly: its type has every field, and no field is there twice.
func readManifests(t *testing.T) (m manifests) {
	t.Helper()
	into := map[string]any{
		"apps/v1 Deployment": &m.deployment, "keda.sh/v1alpha1 ScaledObject": &m.object, "keda.sh/v1alpha1 ScaledJob": &m.job,
		"keda.sh/v1alpha1 TriggerAuthentication": &m.authentication,
	}
	files, err := filepath.Glob(filepath.Join(kubernetesDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for document := range strings.SplitSeq(readText(t, file), "\n---\n") {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			key := kind.APIVersion + " " + kind.Kind
			if into[key] == nil {
				t.Fatalf("%s: another %s", file, key)
			}
			if err := yaml.UnmarshalStrict([]byte(document), into[key]); err != nil {
				t.Errorf("%s: %s: %v", file, key, err)
			}
			delete(into, key)
		}
	}
	for key := range into {
		t.Errorf("there is no %s", key)
	}
	return m
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// setting is the value of a variable of the container.
func setting(pod corev1.PodSpec, name string) string {
	for _, e := range pod.Containers[0].Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

func TestKubernetes_ManifestsFitTogether(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	if got, want := m.deployment.Spec.Template.Labels, m.deployment.Spec.Selector.MatchLabels; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the pods have the labels %v, and %v are selected", got, want)
	}
	if m.object.Spec.ScaleTargetRef.Name != m.deployment.Name {
		t.Errorf("%q is scaled", m.object.Spec.ScaleTargetRef.Name)
	}
	trigger := m.job.Spec.Triggers[0]
	if trigger.Type != "postgresql" || trigger.AuthenticationRef.Name != m.authentication.Name ||
		trigger.Metadata["query"] == "" || trigger.Metadata["targetQueryValue"] == "" ||
		m.authentication.Spec.SecretTargetRef[0].Parameter != "connection" {
		t.Errorf("the trigger of the jobs is %+v", trigger)
	}
	if trigger := m.object.Spec.Triggers[0]; trigger.Type != "prometheus" || trigger.Metadata["serverAddress"] == "" ||
		trigger.Metadata["query"] == "" || trigger.Metadata["threshold"] == "" {
		t.Errorf("the trigger of the deployment is %+v", trigger)
	}
	job := m.job.Spec.JobTargetRef.Template.Spec
	if job.RestartPolicy != corev1.RestartPolicyNever || m.job.Spec.ScalingStrategy.Strategy != "default" {
		t.Errorf("restart policy %q, strategy %q", job.RestartPolicy, m.job.Spec.ScalingStrategy.Strategy)
	}
	if setting(job, "CUELIGHT_UNTIL_IDLE") == "" || setting(m.deployment.Spec.Template.Spec, "CUELIGHT_UNTIL_IDLE") != "" {
		t.Error("only workers in jobs end when they are idle: a deployment would start them again")
	}
}

func TestKubernetes_PodsAreSetUpForTheWorker(t *testing.T) {
	t.Parallel()
	m := readManifests(t)
	help, err := exec.Command(program, "work", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, pod := range map[string]corev1.PodSpec{
		"deployment": m.deployment.Spec.Template.Spec, "job": m.job.Spec.JobTargetRef.Template.Spec,
	} {
		c := pod.Containers[0]
		for _, e := range c.Env {
			if !bytes.Contains(help, []byte("["+e.Name+"]")) {
				t.Errorf("%s: cuelight work has no variable %s", name, e.Name)
			}
		}
		grace, err := time.ParseDuration(setting(pod, "CUELIGHT_GRACE"))
		if err != nil || time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second < grace+20*time.Second {
			t.Errorf("%s: killed after %d s, with a grace of %v: %v", name, *pod.TerminationGracePeriodSeconds, grace, err)
		}
		if !*pod.SecurityContext.RunAsNonRoot || !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation {
			t.Errorf("%s: %+v, %+v", name, pod.SecurityContext, c.SecurityContext)
		}
		mounted := make(map[string]string)
		for _, v := range c.VolumeMounts {
			mounted[v.MountPath] = v.Name
		}
		scratch, key := setting(pod, "CUELIGHT_SCRATCH_DIR"), filepath.Dir(setting(pod, "CUELIGHT_KEY_FILE"))
		for _, v := range pod.Volumes {
			switch v.Name {
			case mounted[scratch]:
				limit := strings.TrimSuffix(setting(pod, "CUELIGHT_SCRATCH_LIMIT"), "B")
				if v.EmptyDir.SizeLimit.Cmp(resource.MustParse(limit)) <= 0 {
					t.Errorf("%s: the volume has %s", name, v.EmptyDir.SizeLimit)
				}
			case mounted[key]:
				if *v.Secret.DefaultMode&0o027 != 0 || pod.SecurityContext.FSGroup == nil {
					t.Errorf("%s: the key has the mode %o", name, *v.Secret.DefaultMode)
				}
			default:
				t.Errorf("%s: the volume %s is not mounted where the worker expects it", name, v.Name)
			}
		}
	}
}

// The README says which rights the role of the autoscaler needs, in the schema of docs/deploy or another one.
func TestKubernetes_BacklogQueryNeedsOnlyTheDocumentedGrants(t *testing.T) {
	t.Parallel()
	query := readManifests(t).job.Spec.Triggers[0].Metadata["query"]
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(readText(t, filepath.Join(kubernetesDir, "README.md")), -1)
	if len(blocks) != 1 {
		t.Fatalf("%d blocks of SQL", len(blocks))
	}
	for _, schema := range []string{"cuelight", "public"} {
		t.Run(schema, func(t *testing.T) {
			t.Parallel()
			h := newEnvironment(t)
			pool := pgtest.NewServer(t, pgtest.ServerOptions{}).New(pgtest.Schema{})
			exec := func(sql string) {
				t.Helper()
				if _, err := pool.Exec(t.Context(), sql); err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
			}
			as := func(role string) string {
				address, err := url.Parse(pool.Config().ConnString())
				if err != nil {
					t.Fatal(err)
				}
				address.User = url.User(role)
				return address.String()
			}
			exec(`create role studio login`)
			exec(`create schema if not exists ` + schema)
			exec(`grant all on schema ` + schema + ` to studio`)
			exec(`alter role studio set search_path = ` + schema)
			cmd := h.command("migrate")
			cmd.Env = append(cmd.Env, "CUELIGHT_DATABASE_URL="+as("studio"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			exec(regexp.MustCompile(`\bcuelight\b`).ReplaceAllString(blocks[0][1], schema))
			// The task is ready for transcode.
			exec(`set search_path = ` + schema + `; insert into tasks (source) values ('a'); update tasks set ingest_status = 'completed'`)
			conn, err := pgx.Connect(t.Context(), as("autoscaler"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			var backlog int
			if err := conn.QueryRow(t.Context(), query).Scan(&backlog); err != nil || backlog != 1 {
				t.Errorf("the backlog is %d, want 1: %v", backlog, err)
			}
		})
	}
}

// A stand-in for a container: the user, the capabilities and the read-only file systems of the pod, and its settings. Only what
// leads to other places is replaced. It needs root.
func TestKubernetes_WorkerOfTheJobWorksWithItsSecurityContext(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "--mount", "setpriv", "--reuid", "1", "true").CombinedOutput(); err != nil {
		t.Skipf("this needs root, setpriv, and unshare, which does not work in a chroot: %v %s", err, out)
	}
	pod := readManifests(t).job.Spec.JobTargetRef.Template.Spec
	f := newFarm(t, "127.0.0.1")
	dir := filepath.Dir(f.h.data)
	scratch, key, binary := filepath.Join(dir, "scratch"), filepath.Join(dir, "key"), filepath.Join(dir, "cuelight")
	mustRun(t, "install", "-m", "755", program, binary)
	mode, group := fmt.Sprintf("%o", *pod.Volumes[1].Secret.DefaultMode), fmt.Sprint(*pod.SecurityContext.FSGroup)
	mustRun(t, "install", "-m", mode, "-g", group, f.keyFile, key)
	mustRun(t, "mkdir", scratch)
	f.args = []string{"--slots", "metadata=1"} // the stage that the workers leave to it
	f.startCoordinator()
	f.submit(1)

	script := fmt.Sprintf(`set -e
		mount -t tmpfs -o mode=2770,gid=%[2]d none '%[1]s'
		cut -d' ' -f2 /proc/self/mounts | while read -r at; do
			case $at in '%[1]s'|/proc*|/sys*|/dev*) ;; *) mount -o remount,bind,ro "$at";; esac
		done
		exec setpriv --reuid %[3]d --regid %[4]d --groups %[2]d --no-new-privs --bounding-set=-all --inh-caps=-all "$@"`,
		scratch, *pod.SecurityContext.FSGroup, *pod.SecurityContext.RunAsUser, *pod.SecurityContext.RunAsGroup)
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", script, "sh", binary}, pod.Containers[0].Args...)...)
	replaced := map[string]string{
		"CUELIGHT_SERVER": f.server, "CUELIGHT_KEY_FILE": key, "CUELIGHT_SCRATCH_DIR": scratch, "CUELIGHT_UNTIL_IDLE": "5s",
		"CUELIGHT_SCRATCH_LIMIT": "1GiB",
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "CUELIGHT_RESERVE=0"} // the disk of the volume is the memory of this host
	for _, e := range pod.Containers[0].Env {
		if value, ok := replaced[e.Name]; ok {
			e.Value = value
		}
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Run(); err != nil {
		t.Errorf("the worker ended with %v", err)
	}
	for line := range strings.Lines(log.String()) {
		var entry struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Level == "warn" || entry.Level == "error" {
			t.Errorf("logged: %s", line)
		}
	}
	awaitCount(t, f.pool, 1, `select count(*) from tasks where publish_status = 'completed'`)
	if n := count(t, f.pool, `select count(*) from attempts where stage = 'transcode' and outcome = 'completed' and worker_id in
		(select id from workers where principal <> '')`); n == 0 {
		t.Errorf("the worker did nothing:\n%s", &log)
	}
}
