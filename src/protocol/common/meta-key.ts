/** The keys of `_meta` that the specification reserves. */

export const PROTOCOL_VERSION = 'io.modelcontextprotocol/protocolVersion'
export const CLIENT_CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities'
export const CLIENT_INFO = 'io.modelcontextprotocol/clientInfo'
export const LOG_LEVEL = 'io.modelcontextprotocol/logLevel'
export const SERVER_INFO = 'io.modelcontextprotocol/serverInfo'
/** Of the tasks extension, as drafted. */
export const RELATED_TASK_IDS = 'io.modelcontextprotocol/relatedTaskIds'
export const SUBSCRIPTION_ID = 'io.modelcontextprotocol/subscriptionId'
