{{- define "counterpoint.pod-security" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "counterpoint.container-security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* What every pod has: (list $ "component"). */ -}}
{{- define "counterpoint.pod" -}}
{{- $root := index . 0 -}}
{{- $pod := $root.Values.pod -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
securityContext:
  {{- include "counterpoint.pod-security" . | nindent 2 }}
{{- with $pod.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "counterpoint.pod-metadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "counterpoint.labels" . | nindent 2 }}
  {{- with $root.Values.pod.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $root.Values.pod.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "counterpoint.spread" -}}
{{- $arguments := . -}}
{{- $root := index . 0 -}}
{{- with $root.Values.pod.spread }}
topologySpreadConstraints:
  {{- range . }}
  - maxSkew: 1
    topologyKey: {{ . | quote }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "counterpoint.selector" $arguments | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* The container of a service, with its probes: (list $ "router"). */ -}}
{{- define "counterpoint.container" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $own := index $root.Values $name -}}
- name: {{ $name }}
  image: {{ include "counterpoint.image" . }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  securityContext:
    {{- include "counterpoint.container-security" . | nindent 4 }}
  env:
    {{- include "counterpoint.environment" . | nindent 4 }}
  ports:
    {{- range $port, $number := index (include "counterpoint.house" $root | fromYaml).ports $name }}
    - name: {{ $port }}
      containerPort: {{ int $number }}
    {{- end }}
  {{- with include "counterpoint.leave" . | int }}
  lifecycle:
    preStop:
      exec: {command: [python, -c, "import time; time.sleep({{ . }})"]}
  {{- end }}
  startupProbe:
    httpGet: {path: /livez, port: health}
    periodSeconds: 2
    timeoutSeconds: 3
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /livez, port: health}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  readinessProbe:
    {{- /* A standby waits for the lease and never has it: it is ready when all else is. */}}
    httpGet: {path: {{ if and (eq $name "memory") (gt (int $own.replicas) 1) }}"/readyz?exclude=lease"{{ else }}/readyz{{ end }}, port: health}
    periodSeconds: 5
    timeoutSeconds: 3
    failureThreshold: 3
  resources:
    {{- toYaml $own.resources | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    {{- include "counterpoint.secret-mounts" . | nindent 4 }}
    {{- if (index $own "tls" | default dict).secret }}
    - {name: tls, mountPath: /etc/counterpoint/tls, readOnly: true}
    {{- end }}
    {{- if (index $own "files" | default dict).secret }}
    - {name: files, mountPath: /etc/counterpoint/files, readOnly: true}
    {{- end }}
    {{- if eq $name "memory" }}
    - {name: data, mountPath: /data}
    - {name: audit, mountPath: /audit}
    {{- end }}
    {{- with $own.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "counterpoint.volumes" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $own := index $root.Values $name -}}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{ include "counterpoint.secret-volumes" . }}
{{- with (index $own "tls" | default dict).secret }}
- name: tls
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- with (index $own "files" | default dict).secret }}
- name: files
  emptyDir: {medium: Memory, sizeLimit: 8Mi}
- name: files-secret
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- with $own.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The secrets of a service or job, and the CA of each server that it connects to: (list $ "router"). */ -}}
{{- define "counterpoint.secret-volumes" -}}
{{- $root := index . 0 -}}
{{- $secret := include "counterpoint.secret" . -}}
{{- $keys := include "counterpoint.secret-keys" . | fromYaml -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- if $keys.needed }}
      - secret:
          name: {{ $secret | quote }}
          items:
            {{- range $keys.needed }}
            - {key: {{ . }}, path: {{ . }}}
            {{- end }}
      {{- end }}
      {{- if $keys.optional }}
      - secret:
          name: {{ $secret | quote }}
          optional: true
          items:
            {{- range $keys.optional }}
            - {key: {{ . }}, path: {{ . }}}
            {{- end }}
      {{- end }}
      {{- if include "counterpoint.has-certificate" . }}
      - secret:
          name: {{ printf "%s-%s" $root.Values.nats.certificatePrefix (index . 1) | quote }}
          items:
            - {key: tls.crt, path: nats.crt}
            - {key: tls.key, path: nats.key}
      {{- end }}
{{- if include "counterpoint.has-ca" . }}
- name: nats-ca
  secret:
    secretName: {{ $root.Values.nats.ca.secret | quote }}
    defaultMode: 0440
    items: [{key: {{ $root.Values.nats.ca.key | quote }}, path: ca.crt}]
{{- end }}
{{- if include "counterpoint.has-postgres-ca" . }}
- name: postgres-ca
  secret:
    secretName: {{ $root.Values.postgres.ca.secret | quote }}
    defaultMode: 0440
    items: [{key: {{ $root.Values.postgres.ca.key | quote }}, path: ca.crt}]
{{- end }}
{{- end -}}

{{- define "counterpoint.secret-mounts" -}}
- {name: secrets, mountPath: /etc/counterpoint/secrets, readOnly: true}
{{- if include "counterpoint.has-ca" . }}
- {name: nats-ca, mountPath: /etc/counterpoint/nats, readOnly: true}
{{- end }}
{{- if include "counterpoint.has-postgres-ca" . }}
- {name: postgres-ca, mountPath: /etc/counterpoint/postgres, readOnly: true}
{{- end }}
{{- end -}}

{{- define "counterpoint.has-ca" -}}
{{- $root := index . 0 -}}
{{- if and $root.Values.nats.ca.secret (include "counterpoint.reaches" (list $root (index . 1) "nats")) }}true{{ end -}}
{{- end -}}

{{- /* Whether its login on the bus is a certificate in a Secret of its own: (list $ "router"). */ -}}
{{- define "counterpoint.has-certificate" -}}
{{- $root := index . 0 -}}
{{- if and $root.Values.nats.certificatePrefix (include "counterpoint.reaches" (list $root (index . 1) "nats")) }}true{{ end -}}
{{- end -}}

{{- define "counterpoint.has-postgres-ca" -}}
{{- $root := index . 0 -}}
{{- if and $root.Values.postgres.ca.secret (include "counterpoint.reaches" (list $root (index . 1) "postgres")) }}true{{ end -}}
{{- end -}}

{{- /* Whether the policy lets a service or job connect to an engine: (list $ "router" "nats"). */ -}}
{{- define "counterpoint.reaches" -}}
{{- if has (index . 2) (index (include "counterpoint.house" (index . 0) | fromYaml).network (index . 1)) }}true{{ end -}}
{{- end -}}

{{- /* Files with credentials have to be readable by their owner alone, which a mounted Secret with fsGroup is not. */ -}}
{{- define "counterpoint.files" -}}
{{- $root := index . 0 -}}
{{- if (index $root.Values (index . 1) "files" | default dict).secret }}
initContainers:
  - name: files
    image: {{ include "counterpoint.image" . }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    command: [python, -c, "import os, shutil; os.umask(0o277); [shutil.copyfile(each.path, f'/files/{each.name}') for each in os.scandir('/files-secret') if each.is_file()]"]
    securityContext:
      {{- include "counterpoint.container-security" . | nindent 6 }}
    resources:
      requests: {cpu: 10m, memory: 16Mi}
      limits: {memory: 32Mi}
    volumeMounts:
      - {name: files-secret, mountPath: /files-secret, readOnly: true}
      - {name: files, mountPath: /files}
{{- end }}
{{- end -}}

{{- /* Seconds for which a service that others call still accepts connections when its pod ends: until every node and the
ingress controller know that it does. 0 for a service that nobody calls. */ -}}
{{- define "counterpoint.leave" -}}
{{- $root := index . 0 -}}
{{- $ports := index (include "counterpoint.house" $root | fromYaml).ports (index . 1) -}}
{{- ternary 5 0 (gt (len $ports) 1) -}}
{{- end -}}

{{- /* Seconds until a pod is killed: those before it is asked to end, the time for deliveries in progress, and 15 s to close. */ -}}
{{- define "counterpoint.grace" -}}
{{- $root := index . 0 -}}
{{- $leave := include "counterpoint.leave" . | int -}}
{{- $settings := merge dict (index $root.Values (index . 1)).settings $root.Values.settings -}}
{{- add 15 $leave (index $settings "COUNTERPOINT_DRAIN_S" | default 15 | ceil | int) -}}
{{- end -}}
