{{/* Two releases in one namespace have other names and other labels. */}}
{{- define "openbook.name" -}}
{{- if contains "openbook" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-openbook{{ end }}
{{- end }}

{{- define "openbook.secret" -}}
{{ .Values.secret.existing | default (include "openbook.name" .) }}
{{- end }}

{{/* What every pod of a release has, the canary's too. */}}
{{- define "openbook.selector" -}}
app.kubernetes.io/name: openbook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "openbook.labels" -}}
{{ include "openbook.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Of a Deployment: its metadata is all that a canary has of its own. */}}
{{- define "openbook.pod" -}}
{{- $name := include "openbook.name" .root -}}
metadata:
  labels:
    {{- include "openbook.labels" .root | nindent 4 }}
    openbook/track: {{ .track }}
  annotations:
    prometheus.io/scrape: "true"
    prometheus.io/port: "8000"
    {{- if not .root.Values.secret.existing }}
    # a new token begins new pods
    openbook/secret: {{ include "openbook.secretData" .root | sha256sum }}
    {{- end }}
spec:
  # longer than the 20 s that questions and a swap are given to end, and the 20 s after it for threads to notice
  terminationGracePeriodSeconds: 60
  automountServiceAccountToken: false
  {{- with .root.Values.serviceAccount }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $where := list "nodeSelector" "tolerations" "affinity" }}
  {{- with index $.root.Values $where }}
  {{ $where }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with .root.Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- $ours := dict "matchLabels" (include "openbook.selector" $.root | fromYaml) }}
    {{- range . }}
    - {{- merge (deepCopy .) (dict "labelSelector" $ours) | toYaml | nindent 6 }}
    {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: openbook
      image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      ports:
        - {name: http, containerPort: 8000}
      env:
        - name: OPENBOOK_ADMIN_TOKEN
          valueFrom:
            secretKeyRef: {name: {{ include "openbook.secret" .root }}, key: admin-token}
        {{- if not .root.Values.claims.indexes }}
        - name: OPENBOOK_INDEXES
          value: {{ .root.Values.store.url | quote }}
        # the copies, on the disk of the node
        - name: OPENBOOK_CACHE
          value: /indexes
        {{- end }}
        {{- with .index }}
        - name: OPENBOOK_INDEX
          value: {{ . | quote }}
        {{- end }}
        {{- range $setting, $value := .root.Values.settings }}
        - name: OPENBOOK_{{ upper $setting }}
          value: {{ $value | quote }}
        {{- end }}
        {{- with .root.Values.store.endpoint }}
        - name: AWS_ENDPOINT_URL
          value: {{ . | quote }}
        {{- end }}
        - name: AWS_ACCESS_KEY_ID
          valueFrom:
            secretKeyRef: {name: {{ include "openbook.secret" .root }}, key: AWS_ACCESS_KEY_ID, optional: true}
        - name: AWS_SECRET_ACCESS_KEY
          valueFrom:
            secretKeyRef: {name: {{ include "openbook.secret" .root }}, key: AWS_SECRET_ACCESS_KEY, optional: true}
        # probes call the address of a pod, which needs no entry
        - name: OPENBOOK_ALLOWED_HOSTS
          {{- $space := printf "%s.%s" $name .root.Release.Namespace }}
          {{- $hosts := list $name $space (printf "%s.svc" $space) (printf "%s.svc.cluster.local" $space) }}
          value: {{ concat $hosts .root.Values.hosts (compact (list .root.Values.ingress.host .root.Values.gateway.host)) | join "," | quote }}
        {{- with .root.Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      securityContext:
        readOnlyRootFilesystem: true
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
      resources:
        {{- toYaml .root.Values.resources | nindent 8 }}
      # the models are loaded within five minutes, or the container is begun again; an index may take longer to come,
      # and until it is there the pod is not ready
      startupProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: 60
      # not ready, as during a swap with policy resource: no questions, and no restart
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        periodSeconds: 5
        timeoutSeconds: 3
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      volumeMounts:
        - {name: indexes, mountPath: /indexes}
        - {name: checkpoints, mountPath: /checkpoints}
        - {name: tmp, mountPath: /tmp}
        {{- with .root.Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: indexes
      {{- with .root.Values.claims.indexes }}
      persistentVolumeClaim: {claimName: {{ . }}}
      {{- else }}
      emptyDir: {sizeLimit: {{ .root.Values.copies.size }}}
      {{- end }}
    - name: checkpoints
      {{- with .root.Values.claims.checkpoints }}
      persistentVolumeClaim: {claimName: {{ . }}}
      {{- else }}
      # filled from the image at each start
      emptyDir: {}
      {{- end }}
    - name: tmp
      emptyDir: {medium: Memory, sizeLimit: 256Mi}
    {{- with .root.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "openbook.secretData" -}}
admin-token: {{ required "secret.adminToken, or secret.existing" .Values.secret.adminToken | quote }}
{{- with .Values.secret.accessKeyId }}
AWS_ACCESS_KEY_ID: {{ . | quote }}
{{- end }}
{{- with .Values.secret.secretAccessKey }}
AWS_SECRET_ACCESS_KEY: {{ . | quote }}
{{- end }}
{{- end }}
